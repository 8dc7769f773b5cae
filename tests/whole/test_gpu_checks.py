# SPDX-License-Identifier: Apache-2.0
"""The checks for a GPU, with made-up ones in their place: what is read, kept, left and shown."""

import argparse
import json
import runpy
import sys

import pytest

from benchmarks import bounded, gpu_checks, gpu_findings
from electra_jax import config as config_lib
from support.corpus import ROOT, load_config

NOTED = "open({path!r}, 'a').write({name!r} + ' ')"


class Calls:
    """Calls of gpu_checks.py with these checks, each of which notes that it has run."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._monkeypatch, self.device = folder, monkeypatch, "a GPU"
        monkeypatch.setattr(bounded, "end_on_sigterm", lambda: None)
        monkeypatch.setattr(gpu_checks, "device_name", lambda: self.device)
        self._ran = folder / "ran.txt"

    def check(self, name, code="", read=lambda *_: {}, seconds=60):
        noted = NOTED.format(path=str(self._ran), name=name)
        return gpu_checks.Check(name, seconds, ["-c", f"{noted}\n{code}"], read)

    def main(self, checks, *flags, out="out"):
        """(exit code, the names of the checks that this call has run)."""
        self._ran.write_text("")
        self._monkeypatch.setattr(gpu_checks, "checks", lambda: checks)
        self._monkeypatch.setattr(sys, "argv", ["", f"--out={self.folder / out}", *flags])
        with pytest.raises(SystemExit) as ended:
            gpu_checks.main()
        return ended.value.code, self._ran.read_text().split()

    def records(self, out="out"):
        return json.loads((self.folder / out / "checks.json").read_text())[self.device]

    def table(self, out="out"):
        return (self.folder / out / "table.txt").read_text()


@pytest.fixture
def calls(tmp_path, monkeypatch):
    return Calls(tmp_path, monkeypatch)


def test_warnings_around_the_json_do_not_hide_it(calls):
    code = (
        "import sys; print('{not json'); print('{\"tokens_per_second\": 5.0}'); print('bye');"
        " print('{\"tokens_per_second\": 6.0}', file=sys.stderr)"
    )
    assert calls.main([calls.check("a", code, gpu_findings.of_json)]) == (0, ["a"])
    record = calls.records()["a"]
    assert record["tokens_per_second"] == 5.0
    assert "bye" in record["end"] and "6.0" in record["end"]


def test_one_that_cannot_be_read_is_recorded_and_the_others_go_on(calls, capsys):
    def fails(done, folder):
        return {"found": {}["absent"]}

    checks = [
        calls.check("a", "print('no more than this')", gpu_findings.of_json),
        calls.check("b", "", fails),
        calls.check("c", "import sys; sys.exit('it went wrong')", gpu_findings.of_json),
        calls.check("d"),
    ]
    assert calls.main(checks) == (1, ["a", "b", "c", "d"])
    records = calls.records()
    assert [record["exit_code"] for record in records.values()] == [1, 1, 1, 0]
    assert records["a"]["error"].startswith("ValueError: exit code 0, but no line")
    assert "no more than this" in records["a"]["end"]
    assert records["b"]["error"] == "KeyError: 'absent'"
    assert "error" not in records["c"]
    lines = calls.table().splitlines()
    assert lines[0] == "a GPU: 1 of 4 checks went well"
    assert lines[3].endswith("exit code 1, it went wrong")
    assert capsys.readouterr().out.endswith(calls.table())  # the whole table comes last


def test_what_does_not_fit_is_left_to_the_next_call(calls, capsys):
    """The folder of the first call is emptied, as some machines do: the other one knows."""
    checks = [calls.check("a"), calls.check("long", seconds=1000), calls.check("c")]
    kept = f"--workdir={calls.folder / 'kept'}"
    assert calls.main(checks, kept, "--seconds=100", out="first") == (0, ["a", "c"])
    assert calls.table("first").endswith("left to do by the same command: long\n")
    assert "not begun: may take 1000 s" in capsys.readouterr().out
    assert sorted(path.name for path in (calls.folder / "first").iterdir()) == [
        "checks.json", "table.txt",
    ]  # fmt: skip

    assert calls.main(checks, kept, "--seconds=2000", out="second") == (0, ["long"])
    assert list(calls.records("second")) == ["a", "c", "long"]
    assert "left to do" not in calls.table("second")
    assert calls.main(checks, kept, out="second") == (0, [])
    assert [path.name for path in (calls.folder / "kept").iterdir()] == ["checks.json"]


def test_without_a_workdir_the_folder_knows_what_is_done(calls):
    checks = [calls.check("a"), calls.check("b")]
    assert calls.main(checks, "--only=a") == (0, ["a"])
    assert calls.main(checks) == (0, ["b"])


def test_what_failed_is_tried_again_after_what_was_never_begun(calls):
    bad = calls.check("a", "import sys; sys.exit(2)")
    assert calls.main([bad]) == (1, ["a"])
    assert calls.main([bad, calls.check("b")]) == (1, ["b", "a"])


def test_results_of_another_device_do_not_count(calls):
    checks = [calls.check("a")]
    calls.main(checks)
    calls.device = "another GPU"
    assert calls.main(checks) == (0, ["a"])
    assert set(json.loads((calls.folder / "out" / "checks.json").read_text())) == {
        "a GPU", "another GPU",
    }  # fmt: skip


def test_a_check_past_its_limit_keeps_what_it_printed(calls, monkeypatch):
    monkeypatch.setattr(gpu_checks, "GRACE", 1)
    code = "import time; print('so far', flush=True); time.sleep(600)"
    check = calls.check("a", code, seconds=8)
    assert calls.main([check]) == (1, ["a"])
    assert calls.records()["a"]["exit_code"] == bounded.OVERDUE
    assert calls.records()["a"]["end"].startswith("so far")
    assert "cut at its limit" in calls.table()


def test_a_check_works_in_an_empty_folder_that_is_gone_afterwards(calls):
    def read(done, folder):
        return {"files": [path.name for path in folder.iterdir()], "folder": str(folder)}

    path = f"{gpu_checks.SCRATCH}/x"
    check = gpu_checks.Check("a", 60, ["-c", f"open({path!r}, 'x').close()"], read)
    for _ in range(2):
        calls.main([check], f"--workdir={calls.folder / 'kept'}")
        record = calls.records()["a"]
        assert record["files"] == ["x"] and record["exit_code"] == 0
        assert record["folder"].startswith(str(calls.folder / "kept"))
        (calls.folder / "kept" / "checks.json").unlink()
        (calls.folder / "out" / "checks.json").unlink()
    assert not list((calls.folder / "kept").iterdir())


def test_a_damaged_list_of_results_is_named(calls):
    (calls.folder / "out").mkdir()
    (calls.folder / "out" / "checks.json").write_text("{")
    code, ran = calls.main([calls.check("a")])
    assert "checks.json is no list of results" in code and not ran


NOTHING = {"exit_code": 0, "seconds": None}
UNKNOWN = {
    "a training that diverged": {
        "ends": [{name: None for name in ("step", "gen_loss", "disc_loss", "tokens_per_second")}]
    },
    "a device without a known peak": {"tokens_per_second": 1234.5, "mfu": None},
    "a step that was not timed": {"tokens_per_second": None},
    "a result that is not finite": {
        "computations": {"x": {"error": None, "tolerance": 1e-4, "agrees": False}}
    },
    "attention without figures": {
        "ways": {"blockwise": {"seconds": None, "temporary_mib": None, "errors": {"mixed": 0.1}}}
    },
    "no side": {"sides": {}},
    "ours alone": {"sides": {"ours": {"tokens_per_second": 5.0}, "peer": {"error": "ended"}}},
    "no ours": {"sides": {"ours": {"error": "ended"}, "peer": {"tokens_per_second": 5.0}}},
    "tests that did not begin": {"failed_tests": []},
}


@pytest.mark.parametrize("found", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_breaks_no_line(found):
    assert gpu_findings.line("a", NOTHING | found).startswith("a ")


def test_lines_say_what_was_found():
    def said(found):
        return gpu_findings.line("a", {"exit_code": 0, "seconds": 12.3} | found).split(" s  ")[1]

    assert said({"tokens_per_second": 1234.5, "mfu": 0.25, "compile_seconds": 9.6}) == (
        "ok, 1,234 tokens/s, MFU 25.0%, ? of a large product's rate, compiled in 10 s"
    )
    sides = {"ours": {"tokens_per_second": 300.0}, "x": {"tokens_per_second": 100.0}}
    sides |= {"y": {"tokens_per_second": 200.0}, "z": {"error": "ended with exit code 1"}}
    assert said({"sides": sides}) == (
        "ok, 300 tokens/s, 1.50 x the fastest peer (y), z: ended with exit code 1"
    )
    wrong = {"products": {"error": 0.5, "tolerance": 1e-4, "agrees": False}}
    assert said({"computations": wrong}) == "ok, products off by 5.0e-01: WRONG"


def test_a_failed_canary_is_said_above_all_figures():
    wrong = {"products": {"error": 0.5, "tolerance": 1e-4, "agrees": False}}
    records = {"canary": NOTHING | {"exit_code": 1, "computations": wrong}, "b": NOTHING}
    lines = gpu_findings.table("", records, ["canary", "b", "c"]).splitlines()
    assert lines[0] == "no NVIDIA GPU: 1 of 3 checks went well"
    assert lines[1].startswith("the canary failed")
    assert lines[-1] == "left to do by the same command: c"


def test_failed_tests_are_named(tmp_path):
    printed = (
        "...F\nFAILED tests/a.py::test_one[x] - assert 1 == 2\nERROR tests/b.py - no module\n"
        "1 failed, 12 passed, 1 error in 3.21s\n"
    )
    found = gpu_findings.of_tests(bounded.Done(1, printed, "", 3.3), tmp_path)
    assert found == {
        "failed": 1, "passed": 12, "errors": 1,
        "failed_tests": ["tests/a.py::test_one[x]", "tests/b.py"],
    }  # fmt: skip
    assert gpu_findings.line("a", NOTHING | found | {"exit_code": 1}).endswith(
        "exit code 1, 12 passed, 1 failed, 1 errors, test_one[x], tests/b.py"
    )


def test_ways_of_attention_that_do_not_agree_are_a_failure(tmp_path):
    done = bounded.Done(0, '{"agree": false}', "", 1.0)
    assert gpu_findings.of_attention(done, tmp_path)["exit_code"] == 1
    done = bounded.Done(0, '{"agree": true}', "", 1.0)
    assert "exit_code" not in gpu_findings.of_attention(done, tmp_path)


def names_of(only):
    made = [gpu_checks.Check(name, 1, [], None) for name in ("small", "small_parts", "base")]
    return [check.name for check in gpu_checks.chosen(made, only)]


def test_checks_are_chosen_by_name_or_by_a_part_of_it_and_each_once():
    assert names_of("") == ["small", "small_parts", "base"]
    assert names_of("base,small") == ["base", "small"]
    assert names_of("parts,sma") == ["small_parts", "small"]
    for only in ("bse", "base,", ",base"):
        with pytest.raises(SystemExit, match=f"--only={only}: no check has"):
            names_of(only)


# The checks themselves.


def test_the_most_valuable_come_first_and_each_fits_into_ten_minutes():
    checks = gpu_checks.checks()
    assert [check.name for check in checks[:7]] == [
        "canary", "small_trains", "small_128_benchmark", "small_128_trace",
        "small_128_against_peer_attention_dropout_0.1", "tests_of_the_model",
        "tests_of_step_and_resume",
    ]  # fmt: skip
    assert len({check.name for check in checks}) == len(checks)
    assert max(check.seconds for check in checks) < 500


def test_the_tests_exist():
    for file in [*gpu_checks.TESTS, *gpu_checks.RESUME]:
        assert (ROOT / file).exists(), file


def test_float32_is_exact_and_steps_are_repeatable_where_tests_need_it():
    found = {check.name: check.environment for check in gpu_checks.checks()}
    for name in ("tests_of_the_model", "tests_of_step_and_resume"):
        assert found[name]["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert "--xla_gpu_deterministic_ops=true" in found["tests_of_step_and_resume"]["XLA_FLAGS"]


OURS = [check for check in gpu_checks.checks() if check.words[0] == "-m"]


@pytest.mark.parametrize(
    "check", [check for check in OURS if check.words[1] != "pytest"], ids=lambda check: check.name
)
def test_settings_of_a_check_exist_and_go_together(check):
    words = [word.partition("=")[::2] for word in check.words[2:]]
    (path,) = [value for flag, value in words if flag == "--config"]
    tree = load_config(path.removeprefix("configs/").removesuffix(".py"))
    for flag, value in words:
        if flag.startswith("--config."):
            *sections, name = flag.removeprefix("--config.").split(".")
            node = tree
            for section in sections:
                node = node[section]
            kept = node[name]
            node[name] = value if isinstance(kept, str) else type(kept)(float(value))
    config_lib.parse(tree)


WITH_ARGPARSE = "benchmarks/against_peer.py", "benchmarks/step_trace.py"


@pytest.mark.parametrize(
    "check",
    [check for check in gpu_checks.checks() if check.words[0] in WITH_ARGPARSE],
    ids=lambda check: check.name,
)
def test_flags_of_a_program_exist(check, monkeypatch):
    class Parsed(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def parse_only(self):
        parse(self)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", [*check.words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(Parsed):
        runpy.run_path(str(ROOT / check.words[0]), run_name="__main__")
