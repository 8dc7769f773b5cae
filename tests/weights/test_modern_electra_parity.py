# SPDX-License-Identifier: Apache-2.0
"""Modern layers in transformers, by the code of their folder: what it computes, opens and saves."""

import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import electra_jax
from electra_jax.core import batch as batch_lib
from electra_jax.core import trees
from electra_jax.model import networks, task_heads
from electra_jax.weights import exporting, reading, trained_weights
from electra_jax.weights.formats import hugging_face
from support import many_scripts, odd, workdirs
from support.exported import equal, flat

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FIELDS = ("layers", "width", "heads", "feed_forward")
TRUNKS = {  # each setting in at least two of them, with both values of the others
    "as in the demo": dict(positions="rotary", norm_place="pre"),
    "everything": odd.MODERN | dict(discriminator_head="cls_context"),
    "norms of another kind": dict(norm_kind="rms", feed_forward_kind="geglu"),
    "near tokens only": dict(local_window=3, global_every=2, biases=False),
}


@pytest.fixture(scope="module", params=TRUNKS)
def case(request, tmp_path_factory):
    """(workdir, its Hugging Face folder, whether the discriminator's head hears [CLS])."""
    base, trunk = tmp_path_factory.mktemp("case"), TRUNKS[request.param]
    workdirs.made(
        base / "run", many_scripts.made("wordpiece"), model__embedding_size=14,
        model__max_positions=45,
        model__discriminator=dict(zip(FIELDS, (3, 20, 5, 44))),
        model__generator=dict(zip(FIELDS, (2, 14, 1, 20))),
        **{f"model__{name}": value for name, value in trunk.items()},
    )  # fmt: skip
    exporting.to_hugging_face(reading.open(base / "run"), str(base / "hf"))
    return base / "run", base / "hf", "discriminator_head" in trunk


with_everything = pytest.mark.parametrize("case", ["everything"], indirect=True)


def loaded(kind, folder, **changes):
    """A model with no tensor missing and none too many."""
    import transformers

    model, about = getattr(transformers, kind).from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True, **changes
    )
    assert not any(about[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def rows(folder, side="right"):
    """Four pairs of texts, of which some are padded."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(
        folder, padding_side=side, trust_remote_code=True
    )
    lines = [line[:12] for line in many_scripts.LINES[:6]]
    given = tokenizer(lines[:3] + ["a"], lines[3:] + ["b c"], padding=True, return_tensors="pt")
    assert given["token_type_ids"].any() and not given["attention_mask"].all()
    return given


def as_batch(given):
    ids_BL, types_BL, mask_BL = (
        jnp.asarray(given[name].numpy(), jnp.int32)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    )
    return batch_lib.Batch(
        ids_BL,
        types_BL,
        jnp.broadcast_to(jnp.arange(ids_BL.shape[1]), ids_BL.shape),
        mask_BL,
        row_B=jnp.zeros(len(ids_BL)),
        word_starts_BL=jnp.zeros(ids_BL.shape, bool),
    )


@pytest.mark.parametrize("side", ["right", "left"])
def test_outputs_agree_with_pairs_and_padding_on_either_side(case, side):
    import torch

    run, folder, hears_cls = case
    given = rows(folder / "discriminator", side)
    batch, ours = as_batch(given), reading.open(run)
    real_BL = given["attention_mask"].numpy() == 1  # what is padding sees otherwise than here
    with torch.no_grad():
        judge = loaded("AutoModelForPreTraining", folder / "discriminator").double()
        judged = judge(**given, output_hidden_states=True)
        predictor = loaded("AutoModelForMaskedLM", folder / "generator").double()
        predicted = predictor(**given).logits.numpy()

    def same(mine, theirs):
        theirs = theirs.numpy() if isinstance(theirs, torch.Tensor) else theirs
        np.testing.assert_allclose(mine[real_BL], theirs[real_BL], atol=1e-5, rtol=1e-5)

    apply, params, _ = electra_jax.load_encoder(run)
    found = apply(params, batch.ids_BL, real_BL, batch.types_BL)
    assert len(judged.hidden_states) == 4  # after the embeddings, and after each of three layers
    same(np.asarray(found.tokens_BLD), judged.hidden_states[-1])
    places_BL = batch.positions_BL
    logits_BLV = networks.generator_logits(ours.networks, ours.params, batch, places_BL)
    same(np.asarray(logits_BLV)[..., : ours.vocabulary.size], predicted)
    if side == "right" or not hears_cls:  # its [CLS] is the first place of a row
        same(np.asarray(networks.discriminate(ours.networks, ours.params, batch)), judged.logits)


@with_everything
def test_every_auto_class_opens_the_folder(case):
    import transformers

    _, folder, _ = case
    for kind in ("AutoModel", "AutoModelForPreTraining", "AutoModelForSequenceClassification",
                 "AutoModelForTokenClassification", "AutoModelForQuestionAnswering"):  # fmt: skip
        model = getattr(transformers, kind).from_pretrained(
            folder / "discriminator", trust_remote_code=True
        )
        assert type(model).__name__.startswith("ModernElectra")


@with_everything
def test_without_leave_to_run_code_it_is_refused(case):
    import transformers

    with pytest.raises(ValueError, match="trust_remote_code=True"):
        transformers.AutoModel.from_pretrained(case[1] / "generator", trust_remote_code=False)


@with_everything
def test_the_lines_of_the_card_run(case, monkeypatch):
    _, folder, _ = case
    card = (folder / "discriminator" / "README.md").read_text()
    monkeypatch.chdir(folder)
    read = {}
    exec(re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0], read)
    found = read["encoder"](**read["tokenizer"](["A text."], return_tensors="pt"))
    assert found.last_hidden_state.shape[-1] == 20 and found.hidden_states is None


@with_everything
def test_what_they_save_is_read_bit_for_bit(case, tmp_path):
    """With its code, so that the folder opens again."""
    import transformers

    run, folder, _ = case
    for network, kind in (
        ("discriminator", "AutoModelForPreTraining"),
        ("generator", "AutoModelForMaskedLM"),
    ):
        loaded(kind, folder / network).save_pretrained(tmp_path / network)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder / network, trust_remote_code=True
        )
        tokenizer.save_pretrained(tmp_path / network)
        loaded(kind, tmp_path / network)

    for network in trained_weights.NETWORKS:
        equal(flat(run, network), flat(tmp_path, network))


def test_a_training_step_moves_every_parameter_with_and_without_checkpointing(case):
    """Gradients are those of the plain backward pass where activations are computed again."""
    import torch

    _, folder, _ = case
    given = rows(folder / "discriminator")
    labels = (given["input_ids"] % 2).long()
    gradients = []
    for again in (False, True):
        model = loaded(
            "AutoModelForPreTraining", folder / "discriminator",
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ).double()  # fmt: skip
        if again:  # in a later version of theirs the other name is deprecated
            theirs = model.gradient_checkpointing_enable
            getattr(model, "activation_checkpointing_enable", theirs)()
        model.train()
        model(**given, labels=labels).loss.backward()
        gradients.append({name: x.grad for name, x in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None and (gradient != 0).any(), name
        torch.testing.assert_close(gradient, gradients[1][name])


@with_everything
def test_dropout_acts_in_training_alone(case):
    import torch

    _, folder, _ = case
    given = rows(folder / "discriminator")
    for kind in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        rates = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0) | {kind: 0.5}
        model = loaded("AutoModelForPreTraining", folder / "discriminator", **rates)
        for training in (False, True):
            model.train(training)
            with torch.no_grad():
                first, second = (model(**given).logits for _ in range(2))
            assert torch.equal(first, second) != training


TASKS = {  # kind of head -> (role, kind of task, labels, class)
    **dict.fromkeys(
        ("two_layer", "linear", "mean", "matched_means"),
        ("classifies", "classification", "abc", "AutoModelForSequenceClassification"),
    ),
    "token": ("tags", "tagging", "abc", "AutoModelForTokenClassification"),
    "span_plain": ("answers", "span", "", "AutoModelForQuestionAnswering"),
}


@with_everything
@pytest.mark.parametrize("kind", TASKS)
def test_fine_tuned_heads_agree(case, tmp_path, kind):
    import torch

    run, _, _ = case
    role, task, labels, name = TASKS[kind]
    one = reading.open(run).alone("discriminator")
    head = task_heads.HeadConfig(kind, 20, outputs=3 if labels else 2, dropout=0.0)
    own = odd.random_like(jax.eval_shape(lambda: task_heads.init(head, jax.random.key(0))), 5)
    tree = {part: x for part, x in one.params["discriminator"].items() if part != "head"}
    flat = trees.flat(jax.device_get(tree | {"embeddings": one.params["embeddings"], "head": own}))
    shape = exporting.hugging_face_shape(one, role, kind)
    fields = hugging_face.task_config(task, labels, 0.0)
    exporting.write_network(str(tmp_path), one, flat, shape, (0.0, 0.0), fields)

    given = rows(tmp_path)
    with torch.no_grad():
        said = loaded(name, tmp_path).double()(**given)
    batch = as_batch(given)
    hidden_BLD = networks.hidden(one.networks, networks.main_trunk(one.networks, one.params), batch)
    if kind == "span_plain":
        everywhere_BL = np.ones(batch.ids_BL.shape, bool)
        found = task_heads.span_plain(own, hidden_BLD, everywhere_BL)
        theirs = said.start_logits, said.end_logits
    else:
        found = (task_heads.SCORES[kind](head, own, hidden_BLD, batch, None),)
        theirs = (said.logits,)
    real_BL = np.asarray(batch.real_BL)
    for mine, other in zip(found, theirs, strict=True):
        kept = real_BL if mine.shape[:2] == real_BL.shape else ...
        np.testing.assert_allclose(np.asarray(mine)[kept], other.numpy()[kept], atol=1e-5, rtol=0)


@with_everything
@pytest.mark.parametrize("head", ["linear", "mean", "matched_means"])
def test_a_fresh_classifier_may_have_any_head_and_has_their_losses(case, head):
    import torch

    _, folder, _ = case
    given = rows(folder / "discriminator")
    losses = torch.nn.functional
    draw = torch.Generator().manual_seed(0)
    marks_BC = torch.randint(2, (4, 3), generator=draw).float()
    for outputs, labels, loss in (
        (3, torch.tensor([0, 2, 1, 1]), losses.cross_entropy),
        (3, marks_BC, losses.binary_cross_entropy_with_logits),
        (1, marks_BC[:, 0], lambda logits_B1, labels_B: losses.mse_loss(logits_B1[:, 0], labels_B)),
    ):
        model = transformers_classifier(folder / "discriminator", head, outputs)
        said = model(**given, labels=labels)
        assert said.logits.shape == (4, outputs)
        torch.testing.assert_close(said.loss, loss(said.logits, labels))
        said.loss.backward()
        assert (model.classifier.out_proj.weight.grad != 0).any()
        as_tuple = model(**given, labels=labels, return_dict=False)
        assert isinstance(as_tuple, tuple)
        torch.testing.assert_close(as_tuple[:2], (said.loss, said.logits))


def transformers_classifier(folder, head, outputs):
    """A pre-trained encoder with a fresh head, without dropout."""
    import transformers

    return transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, trust_remote_code=True, classifier_head=head, num_labels=outputs
    ).eval()
