# SPDX-License-Identifier: Apache-2.0
"""An independent trainer of replaced-token detection: PyTorch and Hugging Face's ELECTRA modules.

`learning_curves.py` starts it: it reads FOLDER/for_the_peer and writes FOLDER/peer.json. With
--judge it trains nothing: it evaluates the weights in for_the_peer/final as it has evaluated its
own at the end, and writes FOLDER/judged.json. It imports nothing of electra_jax: what a token's
segment is, which tokens are masked, what is sampled, the losses, AdamW, the schedule and the
evaluation are written here again, from the paper and the reference's files. It draws with PyTorch's
own generator.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
import transformers
from sklearn import metrics
from torch import nn
from torch.nn import functional

SEGMENT_B = 2  # the bit of a mark where segment B begins
NEVER_DECAYED = ("bias", "LayerNorm.weight")  # optimization.py: LayerNorm, layer_norm, bias


class Pair(nn.Module):
    """Both networks, with one module of embeddings."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        load = {"attn_implementation": "sdpa"}
        self.generator = transformers.ElectraForMaskedLM.from_pretrained(
            folder / "generator", **load
        )
        self.discriminator = transformers.ElectraForPreTraining.from_pretrained(
            folder / "discriminator", **load
        )
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = (
            self.discriminator.electra.embeddings.word_embeddings.weight
        )

    def predict(self, ids, attends, types, slots):
        """Logits over the vocabulary at the slots [B, N, V]."""
        hidden = self.generator.electra(ids, attention_mask=attends, token_type_ids=types)[0]
        hidden = hidden.gather(1, slots[:, :, None].expand(-1, -1, hidden.shape[-1]))
        return self.generator.generator_lm_head(self.generator.generator_predictions(hidden))

    def judge(self, ids, attends, types):
        """Logits of having been replaced [B, L]."""
        return self.discriminator(ids, attention_mask=attends, token_type_ids=types).logits


def segments(ids, marks, pad_id):
    """Returns (attends, types) [B, L]: 1 where a token is, and 1 from the start of segment B on."""
    attends = (ids != pad_id).long()
    return attends, ((marks & SEGMENT_B) > 0).long().cumsum(1).clamp(max=1) * attends


def choose(ids, recipe, draw):
    """Draws the slots of a batch: (slots [B, N], used [B, N], shown as [MASK] [B, N])."""
    special = torch.tensor(recipe["special_ids"])
    allowed = ~torch.isin(ids, special)
    most = int((recipe["mask_rate"] + 0.005) * ids.shape[1])
    wanted = (recipe["mask_rate"] * (ids != recipe["pad_id"]).sum(1)).round().clamp(min=1, max=most)
    wanted = torch.minimum(wanted.long(), allowed.sum(1))
    scores = torch.rand(ids.shape, generator=draw).masked_fill(~allowed, -1.0)
    slots = scores.topk(most, 1).indices
    used = torch.arange(most)[None] < wanted[:, None]
    hidden = used & (torch.rand(slots.shape, generator=draw) < recipe["mask_token_rate"])
    return slots, used, hidden


def play(pair, ids, marks, recipe, draw):
    """One round of both networks: losses as (sum, count), and the judged tokens' logits, labels."""
    attends, types = segments(ids, marks, recipe["pad_id"])
    slots, used, hidden = choose(ids, recipe, draw)
    originals = ids.gather(1, slots)
    shown = originals.masked_fill(hidden, recipe["mask_id"])
    logits = pair.predict(ids.scatter(1, slots, shown), attends, types, slots)
    gen_losses = functional.cross_entropy(logits[used], originals[used], reduction="none")

    chances = logits.detach().softmax(-1).flatten(0, 1)
    sampled = torch.multinomial(chances, 1, generator=draw).view_as(originals)
    corrupted = ids.scatter(1, slots, torch.where(used, sampled, originals))
    real = attends.bool()
    judged, replaced = pair.judge(corrupted, attends, types)[real], (corrupted != ids)[real]
    disc_losses = functional.binary_cross_entropy_with_logits(
        judged, replaced.float(), reduction="none"
    )
    return gen_losses, gen_losses.detach()[hidden[used]], disc_losses, judged.detach(), replaced


def evaluate(pair, ids, marks, recipe, step):
    """Means over the held-out rows, and the area under the ROC curve."""
    draw = torch.Generator().manual_seed(1_000_003 * (1 + recipe["seed"]) + step)
    parts = [[], [], [], []]
    pair.eval()
    with torch.no_grad():
        for first in range(0, len(ids), recipe["rows"]):
            batch = slice(first, first + recipe["rows"])
            _, *found = play(pair, ids[batch], marks[batch], recipe, draw)
            for part, values in zip(parts, found):
                part.append(values)
    pair.train()
    masked, disc, judged, replaced = (torch.cat(part) for part in parts)
    return {
        "gen_masked_loss": float(masked.mean()),
        "disc_loss": float(disc.mean()),
        "disc_auc": float(metrics.roc_auc_score(replaced.numpy(), judged.numpy())),
    }


class Adam:
    """The reference's AdamW (optimization.py): no bias correction, decay beside the gradient."""

    def __init__(self, module, recipe):
        self.recipe = recipe
        self.parameters = [p for _, p in module.named_parameters()]  # one that is shared, once
        self.decays = [
            recipe["weight_decay"] * (not name.endswith(NEVER_DECAYED))
            for name, _ in module.named_parameters()
        ]
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]

    def update(self, step):
        """Clips the gradients together and takes step number `step`, counted from 0."""
        r = self.recipe
        nn.utils.clip_grad_norm_(self.parameters, r["clip_norm"])
        warmup = min(1, step / r["warmup_steps"]) if r["warmup_steps"] else 1
        rate = r["learning_rate"] * (1 - step / r["steps"]) * warmup
        with torch.no_grad():
            for p, mean, square, decay in zip(
                self.parameters, self.means, self.squares, self.decays
            ):
                mean.mul_(r["beta1"]).add_(p.grad, alpha=1 - r["beta1"])
                square.mul_(r["beta2"]).addcmul_(p.grad, p.grad, value=1 - r["beta2"])
                p.sub_(rate * (mean / (square.sqrt() + r["epsilon"]) + decay * p))
                p.grad = None


def read(folder: pathlib.Path) -> tuple:
    """Returns the recipe, and ids and marks of the training rows and of the held-out rows."""
    given = folder / "for_the_peer"
    with np.load(given / "rows.npz") as file:
        lanes = (
            torch.from_numpy(file[name].astype(np.int64))
            for name in ("ids", "marks", "heldout_ids", "heldout_marks")
        )
        return json.loads((given / "recipe.json").read_text()), *lanes


def judge(folder: pathlib.Path) -> dict:
    """Evaluates weights that were trained elsewhere, with the slots of the own last evaluation."""
    recipe, _, _, ids, marks = read(folder)
    return evaluate(Pair(folder / "for_the_peer" / "final"), ids, marks, recipe, recipe["steps"])


def train(folder: pathlib.Path) -> dict:
    """Trains on the rows in their order; returns both curves."""
    recipe, ids, marks, heldout_ids, heldout_marks = read(folder)
    pair = Pair(folder / "for_the_peer" / "initial").train()
    optimizer = Adam(pair, recipe)
    draw = torch.Generator().manual_seed(7 + recipe["seed"])
    curve, evaluations, sums, begun = [], [], {}, time.time()
    evaluations.append({"step": 0} | evaluate(pair, heldout_ids, heldout_marks, recipe, 0))

    for step in range(recipe["steps"]):
        batch = slice(step * recipe["rows"], (step + 1) * recipe["rows"])
        gen, masked, disc, _, _ = play(pair, ids[batch], marks[batch], recipe, draw)
        (recipe["gen_weight"] * gen.mean() + recipe["disc_weight"] * disc.mean()).backward()
        optimizer.update(step)

        for name, losses in (("gen_masked_loss", masked), ("disc_loss", disc.detach())):
            total, count = sums.get(name, (0.0, 0))
            sums[name] = total + float(losses.sum()), count + len(losses)
        done = step + 1
        if done % recipe["log_every"] == 0 or done == recipe["steps"]:
            curve.append({"step": done} | {name: s / n for name, (s, n) in sums.items()})
            sums = {}
        if done % recipe["evaluate_every"] == 0 or done == recipe["steps"]:
            measured = evaluate(pair, heldout_ids, heldout_marks, recipe, done)
            evaluations.append({"step": done} | measured)
            print(f"peer, step {done}: {json.dumps(measured)}", flush=True)

    return {
        "train": curve,
        "eval": evaluations,
        "seconds": time.time() - begun,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def main():
    """Trains or judges, and writes the result at once or not at all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--judge", action="store_true")
    given = parser.parse_args()

    work, name = (judge, "judged.json") if given.judge else (train, "peer.json")
    unfinished = given.folder / f"{name}.new"
    unfinished.write_text(json.dumps(work(given.folder), indent=1) + "\n")
    unfinished.rename(given.folder / name)


if __name__ == "__main__":
    main()
