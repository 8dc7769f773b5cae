# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Base as published (ICLR 2020), and the whole truth about every setting.

    python -m electra_jax.main --config=configs/base.py --workdir=runs/base

Trains on English Wikipedia from TFDS (extra `wikipedia`). Without it, on your own text:

    python -m electra_jax.main --config=configs/base.py --workdir=runs/base \
        --config.data.source='text:corpus/*.txt'

The file is ordered as the data flows: text, networks, objective, optimizer, schedule, devices,
and what is kept of a run. `small.py`, `large.py` and `tiny.py` start from it and change a few
lines. Any field can be overridden: `--config.schedule.steps=1000`.
"""

import importlib

import ml_collections

SIZES = ("tiny", "small", "base", "large")


def get_config() -> ml_collections.ConfigDict:
    """Returns the complete configuration; every other file starts from this one."""
    config = ml_collections.ConfigDict()
    config.name = "base"
    config.seed = 0  # one seed for data order, initial weights, masking, sampling, dropout
    config.data = data()
    config.model = model()
    config.objective = objective()
    config.optimizer = optimizer()
    config.schedule = schedule()
    config.mesh = mesh()
    config.checkpoint = checkpoint()
    config.evaluation = evaluation()
    config.logging = logging()
    config.init = init()
    return config


def of(size: str, name: str) -> ml_collections.ConfigDict:
    """configs/SIZE.py under another name, for the files that change a few lines of any size."""
    if size not in SIZES:
        raise ValueError(f"no size {size!r}; there are {', '.join(SIZES)}")
    config = importlib.import_module(f"configs.{size}").get_config()
    config.name = f"{name}_{size}"
    return config


def data() -> ml_collections.ConfigDict:
    """Text -> vocabulary -> fixed-length rows -> batches."""
    c = ml_collections.ConfigDict()
    # tfds:NAME[/CONFIG][:SPLIT] | text:GLOB | builtin; several joined by ';', weighted by '@W'
    c.source = "tfds:wikipedia/20230601.en:train"
    c.mixture_alpha = 1.0  # without weights a source is drawn in proportion to size^alpha
    c.dir = ""  # prepared data, shared by runs with equal settings; '' is WORKDIR/data
    c.vocab = "train:sentencepiece:30522"  # or train:wordpiece:SIZE, a .model, vocab.txt, .json
    c.vocab_sample_characters = 100_000_000  # text that the vocabulary is trained on
    c.lower_case = True
    c.strip_accents = True
    c.text_field = "text"  # of jsonl, parquet and TFDS records
    c.invalid_utf8 = "replace"  # count and replace | 'refuse'
    c.min_document_characters = 0  # shorter documents are left out
    c.deduplicate = False  # drop exact duplicate documents
    c.heldout_fraction = 0.005  # of the documents, chosen by a hash of their text
    c.rows = "pairs"  # [CLS] A [SEP] B [SEP] as the reference | 'packed': several documents a row
    c.sequence_length = 512  # tokens a row
    c.single_segment_rate = 0.1  # rows with A only; reference: build_pretraining_dataset.py
    c.short_row_rate = 0.05  # rows of a random shorter length; same file
    c.batch_size = 256  # rows a step, over all devices and processes
    c.workers = 0  # processes that prepare; 0 is one a core
    return c


def model() -> ml_collections.ConfigDict:
    """Two Transformer encoders over one embedding table; BERT's, unless the trunk is changed."""
    c = ml_collections.ConfigDict()
    c.embedding_size = 768  # of the shared tables; projected where a network is wider or narrower
    c.max_positions = 512  # rows of the table of learned positions
    c.discriminator = ml_collections.ConfigDict(
        dict(layers=12, width=768, heads=12, feed_forward=3072)
    )
    c.generator = ml_collections.ConfigDict(  # a third of the width, the same depth (table 6)
        dict(layers=12, width=256, heads=4, feed_forward=1024)
    )
    # what the networks share: 'embeddings' | 'none' | 'gdes' (the discriminator learns a difference
    # from the generator's tables, DeBERTaV3) | 'all' (networks of one shape; section 3.2)
    c.sharing = "embeddings"
    c.discriminator_head = "token"  # | 'cls_context': [CLS] is added to every token, DeBERTaV3
    c.dropout = 0.1  # embeddings, attention output, feed-forward output
    c.attention_dropout = 0.1  # attention probabilities
    c.dropout_bits = 8  # random bits a decision: 8 (a rate of 0.1 becomes 26/256) or 32
    c.initial_scale = 0.02  # of the truncated normal, as in BERT
    # The trunk of both networks (docs/modern_trunk.md); parameters differ, so a run keeps its own
    c.positions = "learned"  # a table, as BERT | 'rotary': turned queries and keys, no table
    c.rotary_base = 10_000.0  # RoFormer; larger for longer rows
    c.feed_forward_kind = "gelu"  # as BERT | 'geglu': gated, half as many weights again
    c.norm_place = "post"  # after the residual, as BERT | 'pre': before, and one at the end
    c.norm_kind = "layer"  # | 'rms': no mean, no bias; in the encoders' layers
    c.biases = True  # of attention and feed-forward; ModernBERT has none
    c.local_window = 0  # tokens seen to either side; 0: the whole document. ModernBERT: 64
    c.global_every = 3  # with a window, layers 0, 3, 6, ... still see the whole document
    # How attention is computed; the result is the same. 'einsum' | 'splash' (TPU) | 'cudnn' (GPU),
    # both without attention_dropout | 'auto': splash where a TPU can take it from 512 tokens on
    c.attention = "auto"
    c.dtype = "auto"  # compute: bfloat16 on TPU and GPU, float32 on CPU; weights stay float32
    c.scan = "auto"  # layers as one loop (compiles fast): on TPU; 'on' | 'off' to say it
    c.remat = "none"  # what backward recomputes: 'none' | 'dots' (keep matmuls) | 'full'
    return c


def objective() -> ml_collections.ConfigDict:
    """Replaced-token detection, section 2 of the paper; docs/objectives.md has all others."""
    c = ml_collections.ConfigDict()
    c.name = "replaced_token_detection"  # a file of electra_jax/objectives/
    c.mask_rate = 0.15  # of a row's tokens; large uses 0.25
    c.first_mask_rate = 0.0  # falls from here to mask_rate over the run; 0: constant
    c.mask_token_rate = 0.85  # of the chosen become [MASK], the rest keep their token
    c.random_token_rate = 0.0  # of the chosen become a random token: BERT's 80/10/10 has 0.1
    c.mask_unit = "token"  # what is chosen as a whole: 'token' | 'word' | 'span' of words
    c.span_words = 3.8  # mean length of a span; SpanBERT's
    c.temperature = 1.0  # of the generator when it samples
    c.first_temperature = 0.0  # falls from here to temperature; 0: constant (Fast-ELECTRA: 2)
    c.temperature_decay = 0.1  # time constant of that fall, as a share of the run
    c.disallow_correct = False  # never sample the original token
    c.gen_weight = 1.0  # of the generator's masked-language-model loss
    c.disc_weight = 50.0  # lambda, of the discriminator's loss
    c.mlm_weight = 1.0  # of the main network's loss where it predicts tokens
    return c


def optimizer() -> ml_collections.ConfigDict:
    """AdamW as the reference runs it (optimization.py)."""
    c = ml_collections.ConfigDict()
    # no bias correction | 'adamw': optax's own | 'muon': the layers' matrices by Muon, rest adamw
    c.name = "reference_adamw"
    c.learning_rate = 2e-4  # peak
    c.gen_learning_rate = 0.0  # peak of the generator and the embeddings; 0: learning_rate
    c.disc_learning_rate = 0.0  # peak of what lies in discriminator/; 0: learning_rate
    c.muon_learning_rate = 0.0  # peak of the matrices that Muon takes; 0: learning_rate
    c.beta1 = 0.9
    c.beta2 = 0.999
    c.epsilon = 1e-6
    c.weight_decay = 0.01  # decoupled; not on biases and norms
    c.clip_norm = 1.0  # largest norm of a gradient; 0 switches clipping off
    c.clip = "joint"  # of both networks together, as the reference | 'per_network': each its own
    c.ema_decay = 0.0  # of an average of the weights that is evaluated instead of them; 0: none
    return c


def schedule() -> ml_collections.ConfigDict:
    """rate = peak x shape(share of the budget spent) x min(1, step / warmup_steps)."""
    c = ml_collections.ConfigDict()
    c.steps = 766_000  # the end; with another budget the latest end
    c.budget = "steps"  # what a run spends: 'steps' | 'tokens' | 'minutes'
    c.tokens = 0  # budget in tokens that are no padding
    c.minutes = 0.0  # budget in minutes of training, without evaluating, saving and compiling
    c.warmup_steps = 10_000
    c.shape = "linear"  # falls from step 0 as in the reference | 'cosine' | 'warmup_stable_decay'
    c.decay_share = 0.1  # of the budget, in which warmup_stable_decay falls to 0
    # a step whose gradient norm is far above its running mean: 'go_on' | 'skip' it | 'roll_back' to
    # the newest checkpoint and go on behind the rows that led there
    c.on_spike = "go_on"
    c.spike_factor = 5.0  # how far that is
    c.accumulation = 1  # micro-batches a step; the result is that of the whole batch
    # (share of the budget from which it holds, sequence_length, batch_size), ...: longer rows or
    # larger batches later; BERT had rows of 128, and ((0.9, 512, 256),). (): data's to the end
    c.stages = ()
    return c


def mesh() -> ml_collections.ConfigDict:
    """Devices along each axis; their product is the number of devices."""
    c = ml_collections.ConfigDict()
    c.data = -1  # copies of the model; -1 takes what the other two leave
    c.fsdp = 1  # parameters and optimizer state split over these as well as the batch
    c.tensor = 1  # matrix products split
    return c


def checkpoint() -> ml_collections.ConfigDict:
    """What a run leaves behind to go on from."""
    c = ml_collections.ConfigDict()
    c.every = 1000  # steps
    c.keep_last = 3
    c.keep_every = 0  # steps; these stay for good. 0: none
    return c


def evaluation() -> ml_collections.ConfigDict:
    """On held-out rows, with keys and rows that never change."""
    c = ml_collections.ConfigDict()
    c.every = 5000  # steps
    c.rows = 4096  # at most, per source
    c.batch_size = 0  # 0: the training batch size
    return c


def logging() -> ml_collections.ConfigDict:
    """Console, metrics.jsonl and TensorBoard."""
    c = ml_collections.ConfigDict()
    c.every = 100  # steps
    c.tensorboard = True
    c.report_every = 5000  # steps between two drawings of report.html, and at the end; 0: none
    c.profile = ()  # (first step, last step) whose trace goes to WORKDIR/profile; (): none
    return c


def init() -> ml_collections.ConfigDict:
    """Where the first weights come from."""
    c = ml_collections.ConfigDict()
    # weights to start from: a workdir, a checkpoint folder, an export, a Hugging Face folder, a
    # checkpoint of Google's (docs/weights.md); '': fresh
    c["from"] = ""
    # one whose generator to take: of another objective the main network, if that predicts tokens
    c.generator_from = ""
    c.weights = "auto"  # its averages where it has some | 'ema': only those | 'raw': the last ones
    # with another vocabulary than the weights have: 'refuse' | 'mean': a new token begins as the
    # mean of its old sub-tokens
    c.new_tokens = "refuse"
    # more positions than theirs: 'copied' from the first on, as Longformer did | 'interpolated' |
    # 'fresh': the whole table
    c.longer_positions = "copied"
    # encoder of a generator that they do not have: 'fresh' | 'discriminator': its lowest layers
    c.missing_generator = "fresh"
    # moments of Adam: 'fresh' | 'restored'; either way the rate begins at step 0, with its warmup
    c.optimizer = "fresh"
    return c
