# SPDX-License-Identifier: Apache-2.0
"""The peer: the same two networks trained by PyTorch with Hugging Face's ELECTRA modules.

As fast as its users can make it without writing kernels: the generator's head sees the masked
slots only, tables are tied, AdamW is fused, attention is PyTorch's own; `--compile` adds
torch.compile. Rows are made up; shapes, dropout and arithmetic are those of the pair that it is
held against (`against_peer.py` runs both in turns).

It is a worker: one line of JSON when it is ready, then for each line `N` on standard input N steps
and one line of JSON with their seconds.
"""

import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from transformers import ElectraConfig, ElectraModel
from transformers.models.electra import modeling_electra

MASK, CLS, SEP, FIRST = 4, 2, 3, 5  # ids of the made-up vocabulary


class Pair(nn.Module):
    """Generator and discriminator over one embedding module."""

    def __init__(self, shape, attention):
        super().__init__()
        self.shape = shape

        def network(part):
            config = ElectraConfig(
                vocab_size=shape["vocab"],
                embedding_size=shape["embedding"],
                hidden_size=shape[part]["width"],
                num_hidden_layers=shape[part]["layers"],
                num_attention_heads=shape[part]["heads"],
                intermediate_size=shape[part]["feed_forward"],
                max_position_embeddings=shape["positions"],
                hidden_dropout_prob=shape["dropout"],
                attention_probs_dropout_prob=shape["attention_dropout"],
                attn_implementation=attention,
            )
            return config, ElectraModel(config)

        gen_config, self.generator = network("generator")
        disc_config, self.discriminator = network("discriminator")
        self.generator.embeddings = self.discriminator.embeddings
        self.gen_head = modeling_electra.ElectraGeneratorPredictions(gen_config)
        self.gen_bias = nn.Parameter(torch.zeros(shape["vocab"]))
        self.disc_head = modeling_electra.ElectraDiscriminatorPredictions(disc_config)

    def gen_logits(self, ids, attends, types, slots):
        hidden = self.generator(ids, attention_mask=attends, token_type_ids=types)[0]
        hidden = hidden.gather(1, slots[:, :, None].expand(-1, -1, hidden.shape[-1]))
        table = self.discriminator.embeddings.word_embeddings.weight
        return functional.linear(self.gen_head(hidden), table, self.gen_bias)

    def disc_logits(self, ids, attends, types):
        return self.disc_head(
            self.discriminator(ids, attention_mask=attends, token_type_ids=types)[0]
        )


def make_step(pair, shape, arguments, device):
    """Returns `step(ids)`: choose, mask, fill, judge, backward, clip, update."""
    slots_n = shape["slots"]
    gen_logits, disc_logits = pair.gen_logits, pair.disc_logits
    if arguments.compile:
        gen_logits, disc_logits = torch.compile(gen_logits), torch.compile(disc_logits)
    decayed = [p for name, p in pair.named_parameters() if p.ndim > 1]
    plain = [p for name, p in pair.named_parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=5e-4,
        eps=1e-6,
        fused=True,
    )
    bf16 = arguments.dtype == "bfloat16"

    def step(ids):
        types, attends = torch.zeros_like(ids), torch.ones_like(ids)
        scores = torch.rand(ids.shape, device=device).masked_fill(ids < FIRST, -1.0)
        slots = scores.topk(slots_n, 1).indices
        originals = ids.gather(1, slots)
        shown = torch.where(
            torch.rand(slots.shape, device=device) < 0.85,
            torch.full_like(originals, MASK),
            originals,
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits = gen_logits(ids.scatter(1, slots, shown), attends, types, slots)
            gen_loss = functional.cross_entropy(logits.flatten(0, 1).float(), originals.flatten())
            with torch.no_grad():
                chances = logits.detach().float().softmax(-1)
                sampled = torch.multinomial(chances.flatten(0, 1), 1).view_as(originals)
            corrupted = ids.scatter(1, slots, sampled)
            judged = disc_logits(corrupted, attends, types).float()
            replaced = (corrupted != ids).float()
            disc_loss = functional.binary_cross_entropy_with_logits(judged, replaced)
        (gen_loss + 50 * disc_loss).backward()
        nn.utils.clip_grad_norm_(pair.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return gen_loss.detach(), disc_loss.detach()

    return step


def rows(shape, device, count=4):
    """Batches of ids without structure: [CLS], tokens, [SEP]."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        ids = torch.randint(
            FIRST, shape["vocab"], (shape["batch"], shape["length"]), generator=generator
        )
        ids[:, 0], ids[:, -1] = CLS, SEP
        made.append(ids.to(device))
    return made


def product_rate(dtype, device):
    """FLOP/s of one large product of random numbers."""
    size, seconds = 2048 if device.type == "cpu" else 8192, []
    x = torch.randn(size, size, device=device).to(dtype)
    for _ in range(6):
        begun = time.perf_counter()
        x @ x
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return 2 * size**3 / min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=json.loads, required=True, help="JSON, of against_peer.py")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("high")
    shape = arguments.shape
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pair = Pair(shape, arguments.attention).to(device)
    step = make_step(pair, shape, arguments, device)
    batches = rows(shape, device)

    def run(count):
        seconds = []
        for number in range(count):
            begun = time.perf_counter()
            losses = step(batches[number % len(batches)])
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
        return seconds, [float(loss) for loss in losses]

    begun = time.perf_counter()
    run(2)
    about = {"first_steps_seconds": time.perf_counter() - begun, "torch": torch.__version__}
    on_gpu = device.type == "cuda"
    about["platform"] = "gpu" if on_gpu else "cpu"
    about["device"] = torch.cuda.get_device_name() if on_gpu else "cpu"
    about["parameters"] = sum(p.numel() for p in pair.parameters())
    about["product_rate"] = product_rate(getattr(torch, arguments.dtype), device)
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        seconds, losses = run(int(line))
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)


if __name__ == "__main__":
    main()
