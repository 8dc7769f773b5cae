# SPDX-License-Identifier: Apache-2.0
"""The lock in a bucket, with one object in memory for the bucket; `-m bucket` has a real server."""

import json
import os
import subprocess
import sys

import pytest

from electra_jax.host import bucket_lock, buckets, lock_owner

TIMING = bucket_lock.Timing(sign_of_life=1000.0, silence=1000.0)  # seconds; no test waits for one


class Object:
    """The only object of a bucket, with the number of its version."""

    def __init__(self, monkeypatch):
        self.content, self.generation = b"", 0
        self.answers = True  # whether who writes hears that it was written
        monkeypatch.setattr(buckets, "replace", self.replace)
        monkeypatch.setattr(buckets, "version_of", lambda _: self.version())

    def version(self):
        return buckets.Version(self.content, self.generation)

    def replace(self, _, data, generation):
        """As buckets.replace."""
        if generation != self.generation:
            return self.generation if self.content == data else 0
        self.content, self.generation = data, self.generation + 1
        if not self.answers:
            raise buckets.BucketError("no answer")
        return self.generation


@pytest.fixture
def there(monkeypatch):
    return Object(monkeypatch)


def test_a_sign_of_life_whose_answer_was_lost_does_not_lose_the_lock(there):
    with bucket_lock.hold("gs://lab/lock", "it", timing=TIMING) as held:
        there.answers = False
        held._live()  # written, and never heard of
        there.answers = True
        held._live()  # now with the number of a version that is gone
        assert not held.is_lost()
    assert there.content == b"free\n"


def test_a_lock_that_was_taken_over_is_lost_at_the_next_look(there, monkeypatch):
    """As long as the last sign of life is young, no look is needed."""
    with bucket_lock.hold("gs://lab/lock", "it", timing=TIMING) as held:
        there.replace("", b'{"host": "other", "pid": 1, "at": 1, "token": "b"}', there.generation)
        held.renew_if_old()
        assert not held.is_lost()

        later = bucket_lock.time.time() + 3 * TIMING.sign_of_life  # the machine was suspended
        monkeypatch.setattr(bucket_lock.time, "time", lambda: later)
        held.renew_if_old()
        assert held.is_lost()
        with pytest.raises(bucket_lock.Lost, match="it was taken over by another process"):
            held.refuse()
    assert b"other" in there.content  # who lost it does not free it


def changed(**parts):
    """What this process would write, with other parts."""
    return json.dumps(json.loads(bucket_lock._me("a")) | parts).encode()


def test_only_a_process_of_this_machine_can_be_seen_to_be_gone():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    parent, began = os.getppid(), lock_owner.started(os.getppid())

    assert bucket_lock._is_free(changed(pid=gone.pid))
    assert not bucket_lock._is_free(changed(pid=parent, started=began))
    assert bucket_lock._is_free(changed(pid=parent, started="0"))  # its number was given again
    # Two containers may have one host name, and both their programs may be process 1.
    assert not bucket_lock._is_free(changed(pid=gone.pid, machine="another container"))
    assert not bucket_lock._is_free(changed(machine="another container"))
    assert not bucket_lock._is_free(changed(pid=gone.pid, machine=""))  # of an older version
