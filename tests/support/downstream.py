# SPDX-License-Identifier: Apache-2.0
"""A folder with the sets that benchmarks probe and fine-tune encoders on, some lines of each."""

import pathlib
import zipfile


def write_probes(folder: pathlib.Path) -> pathlib.Path:
    """Writes chunks and subjective sentences, packed as NLTK packs them."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "conll2000.zip", "w") as archive:
        for name in ("train", "test"):
            rows = "".join(f"the DT B-NP\ncat{n} NN I-NP\nsat VB B-VP\n\n" for n in range(40))
            archive.writestr(f"conll2000/{name}.txt", rows)
    with zipfile.ZipFile(folder / "subjectivity.zip", "w") as archive:
        for name, line in (("quote", "a fine cat"), ("plot", "the cat sat")):
            archive.writestr(f"subjectivity/{name}.tok.gt9.5000", f"{line}\n" * 8)
    return folder
