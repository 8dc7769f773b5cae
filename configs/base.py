# SPDX-License-Identifier: Apache-2.0
"""ELECTRA-Base as published (ICLR 2020), with every setting explained.

    python -m electra_jax.main --config=configs/base.py --workdir=runs/base

This trains on English Wikipedia, which the machines that prepare it download from the Hugging Face
Hub. To use your own text:

    python -m electra_jax.main --config=configs/base.py --workdir=runs/base \
        --config.data.source='text:corpus/*.txt'

The discriminator has 110M parameters. The paper trained it in 4 days on 16 TPU v3 chips, to a GLUE
average of 85.1 on the dev sets; that run has not been repeated with this program.

The file is in the order of the data flow: text, networks, objective, optimizer, schedule, devices,
and what a run writes. `small.py`, `large.py` and `tiny_paper.py` start from it and change little.
Any field can be overridden on the command line: `--config.schedule.steps=1000`.

A comment says what the value beside it means, then, behind each `|`, another value that the setting
takes and what that one means.
"""

import importlib

import ml_collections

SIZES = ("tiny", "small", "base", "large")


def get_config() -> ml_collections.ConfigDict:
    """Returns the complete configuration, from which every other pre-training file starts."""
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
    """Returns the paper's method at a size, named NAME_SIZE, for files that change a few lines."""
    if size not in SIZES:
        raise ValueError(f"no size {size!r}; there are {', '.join(SIZES)}")
    # The demo differs from the paper in its method; the size is that of tiny_paper.
    file = "tiny_paper" if size == "tiny" else size
    config = importlib.import_module(f"electra_jax.configs.{file}").get_config()
    config.name = f"{name}_{size}"
    return config


def data() -> ml_collections.ConfigDict:
    """From text to vocabulary, rows of fixed length, and batches."""
    c = ml_collections.ConfigDict()
    # hf:OWNER/NAME[/CONFIG][:SPLIT] | tfds:NAME[/CONFIG][:SPLIT] | text:GLOB | text:ADDRESS |
    # builtin; several joined by ';', weighted by '@W', named in metrics by 'NAME=' before each
    c.source = "hf:wikimedia/wikipedia/20231101.en"
    c.mixture_alpha = 1.0  # without weights a source is drawn in proportion to its rows^alpha
    c.dir = ""  # folder of prepared data, shared by runs with equal settings; '': WORKDIR/data
    c.vocab = "train:sentencepiece:30522"  # or train:wordpiece:SIZE, a .model, vocab.txt, .json
    # pieces that are added to a vocab.txt: those that shorten this text most; with weights to start
    # from, init.new_tokens='mean' begins them
    c.added_pieces = 0
    c.vocab_sample_characters = 100_000_000  # amount of text that trains the vocabulary
    c.lower_case = True  # the published models are uncased
    # As BERT's uncased tokenizer does; False for scripts in which marks are letters, such as Thai
    c.strip_accents = True
    # field with the text in jsonl, parquet and TFDS records: 'text', 'meta.text' within another,
    # 'title+abstract' for several, each on a line of its own; a list of texts has one line each.
    # 'text; NAME=body': the source of this name has another one
    c.text_field = "text"
    # what ends a document of plain text: a blank line | 'lines': each end of a line | 'files': the
    # end of its file, as for books whose blank lines end paragraphs. </doc> ends one in any case.
    # 'blank_lines; NAME=files': the source of this name has another one
    c.documents = "blank_lines"
    c.invalid_utf8 = "replace"  # replace by U+FFFD and count | 'refuse'
    c.min_document_characters = 0  # shorter documents are dropped
    c.deduplicate = False  # whether to drop documents that occurred before, in any source
    # with deduplicate: share of short sequences that two documents have in common, of all that
    # either has, from which they are duplicates; near copies: 0.8. 1.0: equal ones only
    c.duplicate_similarity = 1.0
    c.heldout_fraction = 0.005  # share of documents held out, chosen by a hash of their text

    # [CLS] A [SEP] B [SEP], as in the reference | 'packed': several documents per row
    c.rows = "pairs"
    c.sequence_length = 512  # tokens per row
    c.single_segment_rate = 0.1  # share of rows with A only; build_pretraining_dataset.py
    c.short_row_rate = 0.05  # share of rows with a random shorter length; same file
    c.batch_size = 256  # rows per step, over all devices and processes
    c.workers = 0  # processes that prepare data, tasks with --ray; 0: one per core
    # off | 'on': training begins when the first 16 units of text, of about 32 MiB, are prepared
    c.streaming = "off"
    return c


def model() -> ml_collections.ConfigDict:
    """Two Transformer encoders with shared embeddings; by default BERT's encoder."""
    c = ml_collections.ConfigDict()
    c.embedding_size = 768  # width of the shared tables; projected to a network's own width
    c.max_positions = 512  # size of the table of learned positions: no row may have more tokens
    c.discriminator = ml_collections.ConfigDict(  # as BERT-Base
        dict(layers=12, width=768, heads=12, feed_forward=3072)
    )
    c.generator = ml_collections.ConfigDict(  # a third of the width, the same depth (table 6)
        dict(layers=12, width=256, heads=4, feed_forward=1024)
    )
    # what the networks share: 'embeddings' | 'none' | 'gdes' (the discriminator learns a difference
    # from the generator's tables, DeBERTaV3) | 'all' (networks of one shape; section 3.2)
    c.sharing = "embeddings"
    c.shared_layers = 0  # with 'embeddings': lowest layers that both networks share (TEAMS: 3)
    # reads the state of each token | 'cls_context': that of [CLS] too, as in DeBERTaV3 |
    # 'own_layer': has a layer of its own, beside the encoder's last, which the second head of
    # multi_word_selection (TEAMS) or of corrective_lm then trains
    c.discriminator_head = "token"
    c.dropout = 0.1  # of embeddings, attention output, feed-forward output
    c.attention_dropout = 0.1  # of attention probabilities
    c.dropout_bits = 8  # random bits per decision: 8 (a rate of 0.1 becomes 26/256) or 32
    c.initial_scale = 0.02  # deviation of the truncated normal for initial weights, as in BERT

    # The trunk of both networks (docs/modern_trunk.md). It defines the parameters, so a run cannot
    # change it later.

    c.positions = "learned"  # a table, as in BERT | 'rotary': rotated queries and keys, no table
    c.rotary_base = 10_000.0  # as in RoFormer; take more for longer rows
    c.feed_forward_kind = "gelu"  # as in BERT | 'geglu': gated, with 1.5 times the weights
    # after the residual sum, as in BERT | 'pre': before attention and feed-forward, and once more
    # after the last layer
    c.norm_place = "post"
    c.norm_kind = "layer"  # | 'rms': without mean and bias; in the encoders' layers
    c.biases = True  # of attention and feed-forward; ModernBERT has none
    c.local_window = 0  # tokens seen on each side; 0: the whole document. ModernBERT: 64
    c.global_every = 3  # with a window, layers 0, 3, 6, ... still see the whole document

    # How both networks are computed.

    # 'einsum' | kernels: 'fused' (TPU), 'blockwise' (GPU), 'splash' (TPU, without
    # attention_dropout) | 'auto': a kernel where the device has one for these settings, else
    # einsum. The result is the same.
    c.attention = "auto"
    c.residual_norm = "auto"  # bias, dropout, residual, norm: a kernel on GPUs | 'plain': XLA's
    c.dtype = "auto"  # of computation: bfloat16 on TPU and GPU, float32 on CPU; weights are float32
    c.scan = "auto"  # layers as a loop, which compiles fast: 'on' | 'off' | 'auto': on TPU only
    c.remat = "none"  # what the backward pass recomputes: 'none' | 'dots' (keep matmuls) | 'full'
    return c


def objective() -> ml_collections.ConfigDict:
    """Replaced-token detection, section 2 of the paper; docs/objectives.md has all others."""
    c = ml_collections.ConfigDict()
    c.name = "replaced_token_detection"  # what is learned; docs/objectives.md lists all names
    c.mask_rate = 0.15  # share of a row's tokens that is chosen as slots; large uses 0.25
    c.first_mask_rate = 0.0  # the rate falls from here to mask_rate over the run; 0: constant
    c.mask_token_rate = 0.85  # share of slots that become [MASK]; the rest keep their token
    c.random_token_rate = 0.0  # share of slots that get a random token: 0.1 in BERT's 80/10/10
    c.mask_unit = "token"  # what is chosen as a whole: 'token' | 'word' | 'span' of words
    c.span_words = 3.8  # mean number of words in a span, as in SpanBERT
    c.temperature = 1.0  # of the generator when it samples
    c.first_temperature = 0.0  # falls from here to temperature; 0: constant (Fast-ELECTRA: 2)
    c.temperature_decay = 0.1  # time constant of that fall, as a share of the run
    c.disallow_correct = False  # whether to never sample the original token
    c.gen_weight = 1.0  # of the generator's masked-language-model loss
    c.disc_weight = 50.0  # of the discriminator's loss; lambda in the paper
    c.mlm_weight = 1.0  # of the main network's loss, if it predicts tokens
    c.selection_weight = 2.0  # of the loss of finding the original, with multi_word_selection
    c.selection_size = 5  # tokens that a slot is offered there, the original among them
    return c


def optimizer() -> ml_collections.ConfigDict:
    """AdamW as in the reference (optimization.py)."""
    c = ml_collections.ConfigDict()
    # without bias correction | 'adamw': optax's own | 'muon': Muon for the layers' matrices, adamw
    # for the rest | 'lamb': for large batches, adamw scaled to the norm of each layer's weights
    c.name = "reference_adamw"
    c.learning_rate = 2e-4  # peak
    c.gen_learning_rate = 0.0  # peak for the generator and all it shares; 0: learning_rate
    c.disc_learning_rate = 0.0  # peak for what is the discriminator's alone; 0: learning_rate
    c.muon_learning_rate = 0.0  # peak for the matrices that Muon updates; 0: learning_rate
    c.disc_muon_learning_rate = 0.0  # peak for those in discriminator/; 0: muon_learning_rate
    c.beta1 = 0.9  # decay of the mean of gradients
    c.beta2 = 0.999  # decay of the mean of squared gradients
    c.epsilon = 1e-6  # added outside the root
    c.weight_decay = 0.01  # decoupled; not applied to biases and norms
    c.clip_norm = 1.0  # largest norm of the gradients; 0 switches clipping off
    c.clip = "joint"  # one norm of both networks, as in the reference | 'per_network'
    c.ema_decay = 0.0  # of averaged weights, which are evaluated in place of the last; 0: none
    return c


def schedule() -> ml_collections.ConfigDict:
    """rate = peak x shape(share of the budget spent) x min(1, step / warmup_steps)."""
    c = ml_collections.ConfigDict()
    c.steps = 766_000  # length of the run; with another budget, the most steps that it takes
    c.budget = "steps"  # what limits the run: 'steps' | 'tokens' | 'minutes'
    c.tokens = 0  # budget in tokens, without padding
    c.minutes = 0.0  # budget in minutes of training, without evaluating, saving and compiling
    c.warmup_steps = 10_000  # in which the rate rises from 0
    c.shape = "linear"  # falls from step 0 as in the reference | 'cosine' | 'warmup_stable_decay'
    c.decay_power = 1.0  # linear falls as (1 - share of the budget)^decay_power; NVIDIA: 0.5
    c.decay_share = 0.1  # last share of the budget, in which warmup_stable_decay falls to 0
    # a step whose gradient norm is far above its running mean: 'go_on' | 'skip' it | 'roll_back' to
    # the newest checkpoint and continue with the rows after that step
    c.on_spike = "go_on"
    c.spike_factor = 5.0  # multiple of the running mean above which a norm is a spike
    c.accumulation = 1  # micro-batches per step; the result is that of the whole batch
    # longer rows or larger batches later: (share of the budget at which it begins, sequence_length,
    # batch_size), ...; BERT begins with rows of 128 and has ((0.9, 512, 256),). (): one stage
    c.stages = ()
    return c


def mesh() -> ml_collections.ConfigDict:
    """The number of devices along each axis (their product is that of all), and XLA's options."""
    c = ml_collections.ConfigDict()
    c.data = -1  # copies of the model; -1: all devices that the other two axes leave
    c.fsdp = 1  # devices that split parameters and optimizer state, and the batch too
    c.tensor = 1  # devices that split the matrix products
    # number of slices, or of machines with GPUs, that only the data centre's network connects:
    # `data` goes across them, `fsdp` and `tensor` stay inside one. 0: as the devices report
    c.slices = 0
    # XLA's options for the training step: 'NAME=VALUE NAME=VALUE' | 'auto': only those that the
    # compiler of these devices needs (electra_jax/core/compilers.py). docs/guides/gpu.md has others
    c.compiler_options = "auto"
    return c


def checkpoint() -> ml_collections.ConfigDict:
    """What a run saves in order to continue after an interruption."""
    c = ml_collections.ConfigDict()
    c.every = 1000  # steps between two checkpoints
    c.keep_last = 3  # number of newest checkpoints that are kept
    c.keep_every = 0  # checkpoints at multiples of so many steps are never deleted; 0: none
    # the held-out metric whose best checkpoint is kept too: 'loss' | 'gen_masked_loss' |
    # 'mlm_masked_loss' | 'disc_loss' | 'disc_auc' | 'selection_loss'; '': none. It needs
    # evaluations at those steps
    c.keep_best = ""
    return c


def evaluation() -> ml_collections.ConfigDict:
    """Evaluation on held-out rows; rows and random keys are the same every time."""
    c = ml_collections.ConfigDict()
    c.every = 5000  # steps between two evaluations
    c.rows = 4096  # the most rows per source
    c.batch_size = 0  # rows per batch, split over all devices; 0: as in training
    return c


def logging() -> ml_collections.ConfigDict:
    """What goes to console, metrics.jsonl, TensorBoard and report."""
    c = ml_collections.ConfigDict()
    c.every = 100  # steps between two log lines
    c.tensorboard = True  # whether to write event files to WORKDIR/tensorboard
    # steps between two drawings of report.html and report.png, also at the end; in between, the
    # page is drawn again every half minute or more, in at most 1 % of the time; 0: never
    c.report_every = 5000
    c.profile = ()  # (first step, last step) of a trace in WORKDIR/profile; (): none
    # services that get the metrics too: 'wandb' | 'trackio' | 'mlflow', several joined by ',';
    # '': none. docs/logging.md has their settings
    c.writers = ""
    return c


def init() -> ml_collections.ConfigDict:
    """Where the initial weights come from."""
    c = ml_collections.ConfigDict()
    # weights to start from: a workdir, a checkpoint folder, an export, a Hugging Face folder of an
    # ELECTRA or a BERT, hf:OWNER/NAME of the Hub, a checkpoint of Google's (docs/weights.md); '':
    # fresh weights
    c["from"] = ""
    # a run whose generator is taken; if it has none, its main network, which must predict tokens
    c.generator_from = ""
    c.weights = "auto"  # averages if there are any | 'ema': averages only | 'raw': the last weights
    # if the vocabulary differs from that of the weights: 'refuse' | 'mean': a new token begins as
    # the mean of the old tokens that spell it
    c.new_tokens = "refuse"
    # if there are more positions than in the weights: 'copied': the table is repeated, as in
    # Longformer | 'interpolated' | 'fresh': the whole table is random
    c.longer_positions = "copied"
    # the generator, if the weights have none: 'fresh' | 'discriminator': copies its lowest layers,
    # with its head if that predicts tokens
    c.missing_generator = "fresh"
    # Adam's moments: 'fresh' | 'restored'; either way the schedule begins anew, with its warmup
    c.optimizer = "fresh"
    return c
