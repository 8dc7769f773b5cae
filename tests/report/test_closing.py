# SPDX-License-Identifier: Apache-2.0
"""What a finished run says last."""

import pytest

from electra_jax.report import best_checkpoint, closing

METRICS = {"gen_masked_loss": 5.0, "unigram_entropy": 6.5, "disc_auc": 0.71}


def test_it_says_what_was_learnt_where_the_report_is_and_what_to_do_next(tmp_path):
    said = closing.text(METRICS, f"{tmp_path}/a run", True).splitlines()
    assert said == [
        "Generator 1.50 nats below the unigram line; discriminator AUC 0.71.",
        "(the unigram line is the loss of knowing only how frequent each token is)",
        "",
        f"report     file://{tmp_path}/a%20run/report.html",
        f"look       python -m electra_jax.show --workdir='{tmp_path}/a run'",
        f"fine-tune  python -m electra_jax.finetune --workdir='{tmp_path}/a run'"
        " --config.tasks=rte",
        "           (RTE is downloaded; --config.data.dir=glue reads official files from a folder)",
        f"export     python -m electra_jax.convert --workdir='{tmp_path}/a run'"
        " --to=hugging_face --out='exports/a run'",
    ]


def test_its_commands_take_the_best_checkpoint_where_an_older_one_is_kept():
    best = best_checkpoint.Best("loss", 500, 31.25, 900, 33.0)
    said = closing.text(METRICS, "runs/a", False, best).splitlines()
    assert said[3:] == [
        "best       step 500, whose loss is 31.25 (33 at step 900)",
        "look       python -m electra_jax.show --workdir=runs/a --step=500",
        "fine-tune  python -m electra_jax.finetune --workdir=runs/a"
        " --config.encoder.from=runs/a/checkpoints/500 --config.tasks=rte",
        "           (RTE is downloaded; --config.data.dir=glue reads official files from a folder)",
        "export     python -m electra_jax.convert --workdir=runs/a --step=500 --to=hugging_face"
        " --out=exports/a",
    ]

    newest = best_checkpoint.Best("loss", 900, 31.25, 900, 31.25)
    said = closing.text(METRICS, "runs/a", False, newest)
    assert "best       step 900, whose loss is 31.25\n" in said
    assert "step=" not in said


def test_a_long_verdict_is_wrapped_for_a_terminal_of_80_columns():
    metrics = METRICS | {"disc_accuracy": 0.7, "disc_majority": 0.71}
    said = closing.text(metrics, "runs/a", False).splitlines()
    assert said[:2] == [
        "Generator 1.50 nats below the unigram line; discriminator AUC 0.71, accuracy 1.0",
        'points below always saying "original".',
    ]


@pytest.mark.parametrize(
    ("loss", "begins"),
    [
        (7.0, "(it has not learnt yet how frequent tokens are"),
        (6.55, "(networks first come down to that line; with configs/tiny.py"),
        (6.45, "(networks first come down to that line; with configs/tiny.py"),
        (6.35, ""),
    ],
)
def test_a_network_near_or_above_the_unigram_line_may_only_need_more_steps(loss, begins):
    """The line is at 6.5 nats."""
    said = closing.text(METRICS | {"gen_masked_loss": loss}, "runs/a", False)
    third = said.splitlines()[2]
    assert third.startswith(begins) and bool(third) == bool(begins)
    assert ("more steps may be all it needs" in " ".join(said.split())) == bool(begins)


@pytest.mark.parametrize("metrics", [{"disc_auc": 0.5}, {}])
def test_without_a_report_or_a_generator_it_does_not_speak_of_them(metrics):
    said = closing.text(metrics, "runs/a", False)
    assert "report" not in said and "unigram line" not in said
