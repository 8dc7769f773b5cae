# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations as the ELECTRA paper counts them, and those of the runs it reports.

    shape of a network  ->  operations of one token in a forward pass  ->  those of a whole run

The paper's tables come from a script that its authors released (flops_computation.py). It counts
2mn operations for the product of an m-vector with an m x n matrix, one operation for an
exponential, as many for a backward pass as for a forward pass (so training costs two forward
passes), and a product with a one-hot vector for a look-up in the token table. The formulas below
follow it term by term, including one mistake: the norm after the attention counts 5 operations, not
5 times the width.

The word honest stands for the convention of `accounting.py` and of MFU: only matrix products, three
forward passes, look-ups cost nothing, and the slots and row lengths are those of the real training.
"""

import dataclasses

DROPOUT, NORM, GELU, SOFTMAX = 4, 5, 8, 5  # operations per element, from the script
OUTPUT_SHARE = 80 / 512  # share of positions with a softmax over the vocabulary, from the script
INFERENCE_LENGTH = 128  # tokens of the single input for which the paper counts inference


@dataclasses.dataclass(frozen=True)
class Operations:
    """Operations of one token in a forward pass, by kind."""

    products: float = 0.0  # matrix products with weights, and those of attention
    lookup: float = 0.0  # in the token table, counted as a product with a one-hot vector
    others: float = 0.0  # biases, norms, softmax, dropout; positions, always as one-hot products

    def __add__(self, other: "Operations") -> "Operations":
        return Operations(
            self.products + other.products, self.lookup + other.lookup, self.others + other.others
        )

    def __rmul__(self, times: float) -> "Operations":
        return Operations(times * self.products, times * self.lookup, times * self.others)

    def as_script(self, sparse: bool = False) -> float:
        """Returns the sum that the script gives; with `sparse` without the look-up, as its flag."""
        return self.products + self.others + (0.0 if sparse else self.lookup)


@dataclasses.dataclass(frozen=True)
class NetworkSizes:
    """The sizes of one Transformer. A size of None follows from the width, as in BERT."""

    width: int
    layers: int
    length: int = 512
    vocab_size: int = 30_522
    embedding_size: int | None = None
    heads: int | None = None
    feed_forward: int | None = None
    kernels: int = 2  # matrices of the feed-forward; 3 if it is gated, as in no model of the paper

    def __post_init__(self):
        for name, value in (
            ("embedding_size", self.width),
            ("heads", max(1, self.width // 64)),
            ("feed_forward", 4 * self.width),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)


def embeddings(c: NetworkSizes) -> Operations:
    """Counts token, position and segment embeddings, sum, norm, dropout and the projection."""
    size = c.embedding_size
    project = size != c.width  # there is a projection only if the widths differ
    return Operations(
        products=2 * size * c.width * project,
        lookup=2 * size * c.vocab_size,
        others=2 * size * (c.length + 2) + (2 + NORM + DROPOUT) * size + c.width * project,
    )


def layers(c: NetworkSizes) -> Operations:
    """Counts all layers: attention over the whole row, then feed-forward."""
    attention = Operations(
        products=8 * c.width**2 + 4 * c.length * c.width,
        # Biases, scaling, softmax and dropout of the scores. NORM alone is the script's mistake.
        others=(SOFTMAX + DROPOUT + 1) * c.length * c.heads
        + (3 + 1 + DROPOUT + 1) * c.width
        + NORM,
    )
    gate = 2 * (c.kernels - 2)  # per element, the bias and the multiplication of the gate
    feed_forward = Operations(
        products=2 * c.kernels * c.width * c.feed_forward,
        others=(GELU + 1 + gate) * c.feed_forward + (1 + DROPOUT + 1 + NORM) * c.width,
    )
    return c.layers * (attention + feed_forward)


def masked_head(c: NetworkSizes) -> Operations:
    """Counts the head over the vocabulary for one position where it predicts."""
    size = c.embedding_size
    return Operations(
        products=2 * c.width * size + 2 * size * c.vocab_size,
        others=(1 + GELU + NORM) * size + (SOFTMAX + 2) * c.vocab_size,
    )


def detection_head(c: NetworkSizes) -> Operations:
    """Counts the head of the discriminator for one position.

    The paper includes it in the inference of every network.
    """
    return Operations(products=2 * c.width**2 + 2 * c.width, others=(1 + GELU) * c.width)


def inference(c: NetworkSizes) -> Operations:
    """Counts a whole network per token of its input, as the paper does for inference."""
    return embeddings(c) + layers(c) + detection_head(c)


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """A pre-training run: BERT's if there is no generator, else ELECTRA's.

    Attributes:
      encoder: the network that is kept.
      mask_rate: the share of positions that were really predicted; the script has OUTPUT_SHARE.
      stages: (share of the steps, row length) as really trained; the script has one length.
    """

    encoder: NetworkSizes
    batch: int
    steps: float
    generator: NetworkSizes | None = None
    mask_rate: float = 0.15
    stages: tuple[tuple[float, int], ...] = ()
    output_share: float = OUTPUT_SHARE


def forward(run: Pretraining, output_share: float | None = None) -> Operations:
    """Counts a forward pass of one token, with both networks of the run."""
    share = run.output_share if output_share is None else output_share
    predicting = run.generator or run.encoder
    total = embeddings(predicting) + layers(predicting) + share * masked_head(predicting)
    return total if run.generator is None else total + inference(run.encoder)


def train(run: Pretraining, passes: int = 2, sparse: bool = False) -> float:
    """Returns the operations of the whole run, from the terms of the script.

    With the defaults it is the number that the script prints.
    """
    return passes * run.batch * run.steps * run.encoder.length * forward(run).as_script(sparse)


def honest(run: Pretraining) -> float:
    """Returns the operations of the whole run by the honest convention.

    It counts three forward passes of matrix products, with the real row lengths and slots.
    """
    total = 0.0
    for share, length in run.stages or ((1.0, run.encoder.length),):
        # The reference rounds the number of slots in this way.
        slots = length if run.mask_rate == 1 else int((run.mask_rate + 0.005) * length)
        tokens = share * run.batch * run.steps * length
        total += 3 * tokens * forward(at_length(run, length), slots / length).products
    return total


def at_length(run: Pretraining, length: int) -> Pretraining:
    """Returns the same run with rows of another length."""
    generator = run.generator and dataclasses.replace(run.generator, length=length)
    encoder = dataclasses.replace(run.encoder, length=length)
    return dataclasses.replace(run, encoder=encoder, generator=generator)


@dataclasses.dataclass(frozen=True)
class PublishedLine:
    """A line of the paper's tables 1 to 3.

    Attributes:
      paper: training FLOPs as printed, two digits.
      run: the input of the script; None if the script has a constant instead, `measured`.
      paper_inference: FLOPs of one input of 128 tokens as printed.
      why: the reason for a difference, or what a reader should know about the row.
    """

    name: str
    paper: float
    run: Pretraining | None = None
    measured: float | None = None
    paper_inference: float | None = None
    why: str = ""

    @property
    def script(self) -> float:
        """The figure of the script, with all digits."""
        return self.measured if self.run is None else train(self.run)

    @property
    def equal(self) -> bool:
        """Whether the script's figure, rounded to two digits, equals that of the paper."""
        return f"{self.script:.1e}" == f"{self.paper:.1e}"


_SMALL = NetworkSizes(256, 12, length=128, embedding_size=128)
_SMALL_GENERATOR = NetworkSizes(64, 12, length=128, embedding_size=128)
_BASE = NetworkSizes(768, 12)
_LARGE = NetworkSizes(1024, 24)
_LARGE_GENERATOR = NetworkSizes(256, 24, embedding_size=1024)
_ROBERTA = NetworkSizes(1024, 24, vocab_size=50_265)

_PAPER_SMALL = {1: 1.4e18, 2: 7.1e17, 4: 3.6e17, 8: 1.8e17, 16: 8.9e16}  # {n: FLOPs of 1/n run}


def _small(parts: int) -> Pretraining:
    return Pretraining(_SMALL, batch=128, steps=1e6 / parts, generator=_SMALL_GENERATOR)


def _large(steps: float) -> Pretraining:
    return Pretraining(_LARGE, batch=2048, steps=steps, generator=_LARGE_GENERATOR, mask_rate=0.25)


PUBLISHED = (
    PublishedLine(
        "ELMo",
        3.3e18,
        # TensorFlow's count for 20 rows of 128 words, 10 epochs of LM1B, two passes.
        measured=2 * 10 * 768_648_884 * 568_093_262_680 / (20 * 128),
        paper_inference=2.6e10,
        why="a constant of the script, which rounds to 3.4e18",
    ),
    PublishedLine(
        "GPT",
        4.0e19,
        Pretraining(
            NetworkSizes(768, 12, vocab_size=40_000),
            batch=128,
            steps=960_800,
            mask_rate=1.0,
            output_share=1.0,
        ),
        paper_inference=3.0e10,
        why="predicts every position",
    ),
    PublishedLine(
        "BERT-Small", 1.4e18, Pretraining(_SMALL, batch=128, steps=1.45e6), paper_inference=3.7e9
    ),
    PublishedLine(
        "BERT-Base", 6.4e19, Pretraining(_BASE, batch=256, steps=1e6), paper_inference=2.9e10
    ),
    *(
        PublishedLine(
            f"ELECTRA-Small{f', {100 / parts:g} %' if parts > 1 else ''}",
            paper,
            _small(parts),
            paper_inference=3.7e9,
            why=f"printed is {'' if parts == 1 else f'1/{parts} of '}BERT-Small's"
            + (", whose 1.45M steps cost 10 % more" if parts == 1 else ""),
        )
        for parts, paper in _PAPER_SMALL.items()
    ),
    PublishedLine(
        "ELECTRA-Base",
        6.4e19,
        Pretraining(
            _BASE, batch=256, steps=766_000, generator=NetworkSizes(256, 12, embedding_size=768)
        ),
        paper_inference=2.9e10,
    ),
    PublishedLine(
        "BERT-Large",
        1.9e20,
        Pretraining(_LARGE, batch=256, steps=1e6, stages=((0.9, 128), (0.1, 512))),
        why="counted at 512 tokens; nine steps in ten had 128",
    ),
    PublishedLine(
        "BERT-Large, theirs", 7.1e20, Pretraining(_LARGE, batch=2048, steps=464_000, mask_rate=0.25)
    ),
    PublishedLine("ELECTRA-Large, 400K", 7.1e20, _large(400_000)),
    PublishedLine("ELECTRA-Large, 1.75M", 3.1e21, _large(1_750_000)),
    PublishedLine("RoBERTa, 100K", 6.4e20, Pretraining(_ROBERTA, batch=8000, steps=100_000)),
    PublishedLine("RoBERTa, 500K", 3.2e21, Pretraining(_ROBERTA, batch=8000, steps=500_000)),
    PublishedLine(
        "XLNet",
        3.9e21,
        # TensorFlow's count for 32 rows, 500,000 steps of 8192 rows, two passes.
        measured=2 * 500_000 * 8192 * 15_064_773_691_518 / 32,
        why="a constant of the script",
    ),
    PublishedLine(
        "ALBERT-xxlarge",
        3.1e22,
        Pretraining(
            NetworkSizes(4096, 12, vocab_size=30_000, embedding_size=128),
            batch=4096,
            steps=1.5e6,
        ),
    ),
)
