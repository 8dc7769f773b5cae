# SPDX-License-Identifier: Apache-2.0
"""A folder that is complete or absent, wherever it is to lie and whatever library fails."""

import errno
import os

import pytest

from electra_jax.host import whole_folder


def write(path, content="whole"):
    with whole_folder.new(str(path)) as folder:
        with open(os.path.join(folder, "file"), "w", encoding="utf-8") as file:
            file.write(content)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_leads_to_the_folder(tmp_path, is_there):
    place = tmp_path / "elsewhere"
    if is_there:
        place.mkdir()
    (tmp_path / "link").symlink_to(place)
    write(tmp_path / "link")
    assert (place / "file").read_text() == "whole" and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "link"]


def test_a_mount_point_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tmp_path / "mounted"))
    with pytest.raises(ValueError, match="mounted is a mount point, .* such as .*mounted/export"):
        write(tmp_path / "mounted")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        Exception("No space left on device (os error 28)"),  # as tokenizers has it
        ValueError("RESOURCE_EXHAUSTED: Error writing: [OS error 28: No space left on device]"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    ],
)
def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path, error):
    with pytest.raises(OSError, match="No space left on device: .*out") as caught:
        with whole_folder.new(str(tmp_path / "out")):
            raise error
    assert caught.value.errno == errno.ENOSPC and not list(tmp_path.iterdir())


def test_an_interruption_while_the_disk_is_full_stays_one(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with whole_folder.new(str(tmp_path / "out")):
            try:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                raise KeyboardInterrupt from None
    assert not list(tmp_path.iterdir())
