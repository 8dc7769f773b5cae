# SPDX-License-Identifier: Apache-2.0
"""What is refused before text is prepared on a cluster of Ray; none of it needs Ray."""

import importlib.util
import os
import socket

import pytest

from electra_jax.data import ray_node, ray_workers, text
from support.commands import free_port


def test_without_ray_the_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"--ray=auto needs ray.* pip install 'ray>=2\.60'$"):
        ray_workers.check("auto")


@pytest.mark.parametrize("address", ["", "head", ":6379", "head:port", "ray://127.0.0.1:10001"])
def test_what_is_no_address(monkeypatch, address):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(ValueError, match="is neither HOST:PORT, as `ray start --head` prints it"):
        ray_workers.check(address)


def test_an_address_where_nobody_listens(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(ValueError, match="no cluster of Ray can be used there .*refused"):
        ray_workers.check(f"127.0.0.1:{free_port()}")


def test_a_node_says_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a node goes by itself, and would stay
    source = text.parse(f"text:{tmp_path}/*.txt")
    token = tmp_path / "token"
    assert "does not see" in ray_node.inspect_node(source, str(token), str(tmp_path))
    token.touch()
    assert "matches no file" in ray_node.inspect_node(source, str(token), str(tmp_path))
    (tmp_path / "a.txt").write_text("a")
    found = ray_node.inspect_node(source, str(token), str(tmp_path))
    assert found == ray_node.versions_and_text(source)
    assert os.listdir(tmp_path) != [] and sorted(os.listdir(tmp_path)) == ["a.txt", "token"]


def test_what_differs_is_named_with_both_values(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    here = ray_node.versions_and_text(text.parse(f"text:{tmp_path}/*.txt"))
    assert ray_node.difference(here, dict(here)) == ""
    there = here | {"Python": "3.0"}
    assert ray_node.difference(here, there).startswith("has Python 3.0, and this")
    (tmp_path / "a.txt").write_text("ab")
    there = ray_node.versions_and_text(text.parse(f"text:{tmp_path}/*.txt"))
    assert "other files of text" in ray_node.difference(here, there)


def test_a_node_that_joined_late_refuses_its_first_task():
    driver = ray_node.Driver(ray_node.versions() | {"numpy": "1.0"}, os.getcwd(), "")
    answer, characters = ray_node.do_task(lambda task: task, None, driver)
    assert isinstance(answer, ValueError) and characters == 0
    assert f"node {socket.gethostname()} has numpy" in str(answer)
