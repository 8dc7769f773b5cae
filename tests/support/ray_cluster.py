# SPDX-License-Identifier: Apache-2.0
"""A real cluster of Ray on this machine: each node is a set of processes, and offers one CPU."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from .commands import free_port

_MEMORY = 100_000_000  # bytes of a node's object store
# A node that is gone is noticed after a second instead of ten.
_NOTICE = {"RAY_health_check_period_ms": "200", "RAY_health_check_failure_threshold": "5"}


class Node:
    """One node, begun by `ray start` with these flags and, besides ours, this environment."""

    def __init__(self, *flags, **environment):
        ray = os.path.join(os.path.dirname(sys.executable), "ray")
        common = ["--block", "--num-cpus=1", f"--object-store-memory={_MEMORY}"]
        self.process = subprocess.Popen(
            [ray, "start", *common, "--disable-usage-stats", *flags],
            env=os.environ | _NOTICE | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        said = ""
        for line in self.process.stdout:
            said += line
            if "Ray runtime started" in line:
                return
        raise AssertionError(said)

    def kill(self):
        """Kills all processes of the node at once, as if its machine were gone."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()

    def workers(self):
        """The numbers of the processes that do tasks."""
        return [
            pid for pid in _below(self.process.pid) if _title(pid) in ("ray::work", "ray::IDLE")
        ]


class Cluster:
    """A head and more nodes; `address` is that of the head. All have the same environment."""

    def __init__(self, nodes, **environment):
        self._environment = environment
        # Sockets lie in it, whose paths must be short.
        self._folder = tempfile.mkdtemp(prefix="ray")
        self.address = f"127.0.0.1:{(port := free_port())}"
        head = ("--head", f"--port={port}", "--include-dashboard=false")
        self.nodes = [Node(*head, f"--temp-dir={self._folder}", **environment)]
        # One after another: nodes of one machine that begin at once take each other's ports.
        for _ in range(1, nodes):
            self.add()

    def add(self, **environment):
        """Begins one more node, with more in its environment."""
        self.nodes.append(Node(f"--address={self.address}", **(self._environment | environment)))
        return self.nodes[-1]

    def stop(self):
        """Kills what is left."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _below(pid):
    """The numbers of all processes that a process has begun, and that those have begun."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [one for child in map(int, children) for one in (child, *_below(child))]


def _title(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode().strip()
    except FileNotFoundError:
        return ""
