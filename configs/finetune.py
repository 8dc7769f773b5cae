# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning to the paper's protocol, and the whole truth about every setting of it.

    python -m electra_jax.finetune --workdir=runs/small --config.data.dir=glue \
        --config.tasks=cola,mrpc --config.seeds=5

`--workdir` is that of a pre-training run; everything goes to WORKDIR/finetune/NAME. The same
command after an interruption goes on with the first seed that is not finished. docs/finetuning.md
has the recipe with its sources, and where the paper and its released code disagree.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """Returns the complete configuration; every other file of fine-tuning starts from this one."""
    config = ml_collections.ConfigDict()
    config.name = "finetune"  # folder of the results within WORKDIR/finetune
    # joined by commas: cola sst2 mrpc stsb qqp mnli qnli rte wnli ax squad squad2 chunking ner ...
    config.tasks = "cola,sst2,mrpc,stsb,qnli,rte"
    config.seeds = 5  # fine-tunings of each task, of which tables show median, mean and deviation
    config.seed = 0  # of the first one: its head, order of rows and dropout; the others follow
    config.data = data()
    config.encoder = encoder()
    config.recipe = recipe()
    config.span = span()
    config.grid = grid()
    config.evaluation = evaluation()
    config.run = run()
    config.custom = custom()
    return config


def data() -> ml_collections.ConfigDict:
    """Where examples come from."""
    c = ml_collections.ConfigDict()
    # 'tfds', or the folder with the official files: CoLA/train.tsv, train-v1.1.json. Of a task of
    # your own the folder with its files; with 'tfds' they are looked for where the command runs
    c.dir = "tfds"
    c.dev_share = 0.1  # cut off train by a hash of the text, where a task has no dev set
    c.train_examples = 0  # the first so many after shuffling by a fixed seed; 0: all
    return c


def encoder() -> ml_collections.ConfigDict:
    """What is fine-tuned."""
    c = ml_collections.ConfigDict()
    c.init = "pretrained"  # | 'fresh': the same shape with random weights, the control
    # '': --workdir, a pre-training run; else a checkpoint's folder, an export of `convert`, or a
    # Hugging Face folder
    c["from"] = ""
    c.step = 0  # of the checkpoint; 0: the newest
    c.data_dir = ""  # where the run's prepared data is, if not where its configuration says
    # 'rte:mnli,stsb:mnli,mrpc:mnli': tasks that start from the encoder that another one tuned
    # here, or from that in a folder of such a run
    c.start_from = ""
    return c


def recipe() -> ml_collections.ConfigDict:
    """Optimizer and schedule; 0 stands for the published value, by size of encoder or by task."""
    c = ml_collections.ConfigDict()
    c.head = "linear"  # on [CLS], as published | 'two_layer': Hugging Face's
    c.head_dropout = 0.1
    c.learning_rate = 0.0  # peak, of the head; 0: by size, as `published` says
    c.published = "paper"  # small 3e-4, base 1e-4, large 5e-5 | 'released_code': small 1e-4
    c.layer_decay = 0.0  # rate of a layer over that of the layer above; 0: 0.8, large 0.9
    c.decay_rule = "paper"  # top layer decay^1 | 'released_code': decay^2
    c.weight_decay = 0.0  # paper; the released code has 0.01
    c.loss = "mean"  # over a batch | 'sum': as the released code, so that clipping always acts
    c.clip_norm = 1.0  # largest norm of a gradient; 0 switches clipping off
    c.optimizer = "reference_adamw"  # no bias correction | 'adamw': optax's own
    c.beta1 = 0.9
    c.beta2 = 0.999
    c.epsilon = 1e-6
    c.warmup_share = 0.1  # of the steps
    c.epochs = 0  # 0: 10 for rte and stsb, 2 for squad, 3 for all others
    c.batch_size = 32  # rows a step
    c.sequence_length = 0  # most tokens of a row; 0: 128, tagging 256, squad 512
    c.dropout = 0.1  # of the encoder, whatever it was pre-trained with
    c.attention_dropout = 0.1
    c.both_orders = "published"  # pairs of mrpc and stsb both ways round | 'off': never
    return c


def span() -> ml_collections.ConfigDict:
    """Answering questions by a span of a text."""
    c = ml_collections.ConfigDict()
    c.head = "joint"  # the end given the start, and whether there is an answer | 'plain': BERT's
    c.hidden = 512  # width of the joint head's small networks
    c.beam = 20  # starts, and ends for each of them
    c.impossible_weight = 0.5  # of the loss that judges whether there is an answer
    c.query_length = 64  # most tokens of a question
    c.stride = 128  # tokens between two windows over a long text; half a window at most
    c.n_best = 20  # answers that are kept of each question
    c.longest_answer = 30  # tokens
    # training windows that miss the answer: 'first_position' is where it is said to be, as in the
    # released code | 'impossible': that, and the window has no answer | 'skip': left out
    c.without_answer = "first_position"
    return c


def grid() -> ml_collections.ConfigDict:
    """Every rate with every number of epochs; the best median on dev is the task's result."""
    c = ml_collections.ConfigDict()
    c.learning_rates = ()  # (): the recipe's alone
    c.epochs = ()  # (): the recipe's alone
    return c


def evaluation() -> ml_collections.ConfigDict:
    """On dev while a seed trains."""
    c = ml_collections.ConfigDict()
    c.times = 4  # in each training, at equal distances; the last one at its end
    c.keep = "last"  # which weights count: at the end, as published | 'best': of these times
    return c


def run() -> ml_collections.ConfigDict:
    """How it runs: numbers differ by rounding, and with `lengths` in which rows share a batch."""
    c = ml_collections.ConfigDict()
    # seeds side by side in one program: 'auto', on accelerators | 'on' | 'off', one after another
    c.vmapped_seeds = "auto"
    c.lengths = (32, 64, 128, 256, 512)  # that rows are padded to; each costs a compilation
    c.dtype = "auto"  # bfloat16 on TPU and GPU, float32 on CPU
    c.scan = "auto"  # layers as one loop (compiles fast) as pre-trained; 'on' | 'off' to say it
    c.devices = -1  # that split the rows; -1: all
    c.save = "best"  # tuned weights of the best seed | 'all' | 'none'
    return c


def custom() -> ml_collections.ConfigDict:
    """A task of your own, which --config.tasks=custom names; configs/finetune_custom.py."""
    c = ml_collections.ConfigDict()
    c.kind = "classification"  # 'regression' | 'multi_label' | 'tagging' | 'span'
    c.train = ""  # files, globs, x.zip/member, tfds:NAME:SPLIT; several with ';' between
    c.dev = ""  # '': data.dev_share of train
    c.test = ""  # need not have labels
    c.text = ""  # column: its name in the header, or its number from 0
    c.pair = ""  # column of the second text; '': single sentences
    c.label = ""  # column; several, joined by commas, for multi_label in columns of 0 and 1
    c.id = ""  # column, in which every row differs; '': rows are counted
    c.labels = ""  # their names, joined by commas; '': as train has them
    c.separator = ","  # between the labels of one cell
    # 'tsv' | 'csv' | 'jsonl' | 'lines' | 'label_first', a blank and the text; '': by the ending
    c.format = ""
    c.header = True  # a first line that names the columns
    c.quotes = ""  # "..." around a cell: 'on' | 'off'; '': in CSV and not in TSV
    c.encoding = "utf-8"
    c.odd_rows = "refuse"  # rows with another number of cells | 'skip'
    c.metrics = ""  # joined by commas; '': those of the kind
    c.main = ""  # the metric that chooses; '': the first
    c.both_orders = False  # train on every pair the other way round too
    c.label_range = ()  # of regression: (lowest, highest); (): as train has them
    c.impossible = False  # span: some questions have no answer
    return c
