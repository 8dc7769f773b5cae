# SPDX-License-Identifier: Apache-2.0
"""Files of tasks that are fine-tuned: written, and read as a command reads them."""

from electra_jax.finetuning.tasks import built_in, custom, reading


def write(folder, **contents):
    """Writes NAME.tsv of each name, bytes as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.tsv").write_bytes(data)
    return folder


def read(name, place, **options):
    """The examples of a task that is built in."""
    return reading.read(built_in.named(name), str(place), **options)


def texts(split):
    """(id, first text, second text, label) of each example."""
    return [(e.id, e.a, e.b, e.label) for e in split.examples]


def read_custom(place, dev_share=0.1, **settings):
    """The examples of a task of one's own, with these settings of the section `custom`."""
    return reading.read(custom.task(settings), str(place), dev_share)
