# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning by the paper's protocol, with every setting explained.

    python -m electra_jax.finetune --workdir=runs/mine --config.tasks=cola,mrpc --config.seeds=5

`--workdir` is that of a pre-training run; TFDS downloads the tasks' files. All results go to
WORKDIR/finetune/NAME: a table with median, mean and deviation per task, predictions, and a zip file
for GLUE's site. The same command after an interruption continues with the first seed that is not
finished. docs/finetuning.md has the recipe with its sources, and says where the paper and its
released code disagree.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """Returns the complete configuration, from which every other fine-tuning file starts."""
    config = ml_collections.ConfigDict()
    config.name = "finetune"  # folder of the results in WORKDIR/finetune
    # joined by commas: cola sst2 mrpc stsb qqp mnli qnli rte wnli ax squad squad2 chunking ner ...
    config.tasks = "cola,sst2,mrpc,stsb,qnli,rte"
    config.seeds = 5  # fine-tunings per task; tables show their median, mean and deviation
    config.seed = 0  # the first seed, for head, order of rows and dropout; the others follow it
    config.data = data()
    config.encoder = encoder()
    config.recipe = recipe()
    config.span = span()
    config.grid = grid()
    config.evaluation = evaluation()
    config.run = run()
    config.logging = logging()
    config.custom = custom()
    return config


def data() -> ml_collections.ConfigDict:
    """Where examples come from."""
    c = ml_collections.ConfigDict()
    # 'tfds', or the folder with the official files: CoLA/train.tsv, train-v1.1.json. For a task of
    # your own, the folder with its files; with 'tfds' it is the one in which the command runs
    c.dir = "tfds"
    c.dev_share = 0.1  # share of train, chosen by a hash of the text, if a task has no dev set
    c.train_examples = 0  # number of examples, after shuffling with a fixed seed; 0: all
    return c


def encoder() -> ml_collections.ConfigDict:
    """Which encoder is fine-tuned."""
    c = ml_collections.ConfigDict()
    c.init = "pretrained"  # | 'fresh': random weights in the same shape, as a baseline
    # '': the pre-training run in --workdir; otherwise the folder of a checkpoint, an export of
    # `convert`, a Hugging Face folder of an ELECTRA or a BERT, hf:OWNER/NAME, or a checkpoint of
    # Google's
    c["from"] = ""
    c.step = 0  # step of the checkpoint; 0: the newest
    c.data_dir = ""  # folder of the run's prepared data; '': as its configuration says
    # 'rte:mnli,stsb:mnli,mrpc:mnli': a task starts from the encoder that another task has tuned in
    # this run, or from that in the folder of another fine-tuning run
    c.start_from = ""
    return c


def recipe() -> ml_collections.ConfigDict:
    """Optimizer and schedule; in many settings 0 means the published value, by size or by task."""
    c = ml_collections.ConfigDict()
    # on [CLS], as published | 'two_layer': on [CLS], Hugging Face's | 'mean': on the mean of all
    # tokens, or of pairs on the means of both texts, their difference and their product; for
    # encoders that were not trained for long
    c.head = "linear"
    c.head_dropout = 0.1  # of the input of the head
    c.learning_rate = 0.0  # peak, for the head; 0: by size of the encoder, see `published`
    c.published = "paper"  # small 3e-4, base 1e-4, large 5e-5 | 'released_code': small 1e-4
    c.layer_decay = 0.0  # rate of a layer divided by that of the layer above; 0: 0.8, large 0.9
    # the embeddings and this many of the lowest layers keep their weights; 0: all is trained
    c.frozen_layers = 0
    c.decay_rule = "paper"  # top layer decay^1 | 'released_code': decay^2
    c.weight_decay = 0.0  # as in the paper; the released code has 0.01
    c.loss = "mean"  # over a batch | 'sum': as in the released code, where clipping always acts
    c.clip_norm = 1.0  # largest norm of the gradients; 0 switches clipping off
    c.optimizer = "reference_adamw"  # without bias correction | 'adamw': optax's own
    c.beta1 = 0.9  # decay of the mean of gradients
    c.beta2 = 0.999  # decay of the mean of squared gradients
    c.epsilon = 1e-6  # added outside the root
    c.warmup_share = 0.1  # share of the steps
    c.epochs = 0  # 0: 10 for rte and stsb, 2 for squad, 3 for all others
    c.batch_size = 32  # rows per step
    c.sequence_length = 0  # the most tokens in a row; 0: 128, tagging 256, squad 512
    c.dropout = 0.1  # of the encoder; its value in pre-training is not used
    c.attention_dropout = 0.1  # likewise
    c.both_orders = "published"  # train on each pair of mrpc and stsb in both orders | 'off': never
    return c


def span() -> ml_collections.ConfigDict:
    """Questions that are answered by a span of a text."""
    c = ml_collections.ConfigDict()
    # predicts the end given the start, and whether there is an answer | 'plain': as in BERT
    c.head = "joint"
    c.hidden = 512  # width of the hidden layers in the joint head
    c.beam = 20  # number of starts, and of ends for each start
    c.impossible_weight = 0.5  # of the loss for whether there is an answer
    c.query_length = 64  # the most tokens in a question
    c.stride = 128  # tokens between two windows over a long text; half a window at most
    c.n_best = 20  # answers that are kept per question
    c.longest_answer = 30  # tokens
    # training windows without the answer: 'first_position' labels position 0 as the answer, as in
    # the released code | 'impossible' does that and labels the window as one without an answer |
    # 'skip' leaves the window out
    c.without_answer = "first_position"
    return c


def grid() -> ml_collections.ConfigDict:
    """A search over all pairs of rate and epochs; the best median on dev is the task's result."""
    c = ml_collections.ConfigDict()
    c.learning_rates = ()  # peaks; (): only that of the recipe
    c.epochs = ()  # (): only those of the recipe
    return c


def evaluation() -> ml_collections.ConfigDict:
    """Evaluation on dev during the training of a seed."""
    c = ml_collections.ConfigDict()
    c.times = 4  # evaluations per training, at equal distances, the last one at its end
    c.keep = "last"  # which weights are kept: the last, as published | 'best': the best on dev
    return c


def run() -> ml_collections.ConfigDict:
    """How it is computed. Results differ by rounding only; `lengths` also changes the batches."""
    c = ml_collections.ConfigDict()
    # whether all seeds train side by side in one program: 'on' | 'off' | 'auto': five at a time on
    # accelerators, for encoders up to 50M parameters; fewer if their memory is too small
    c.vmapped_seeds = "auto"
    c.lengths = (32, 64, 128, 256, 512)  # tokens that rows are padded to; one compilation for each
    c.dtype = "auto"  # of computation: bfloat16 on TPU and GPU, float32 on CPU
    c.scan = "auto"  # layers as a loop, which compiles fast: 'on' | 'off' | 'auto': on TPUs
    c.devices = -1  # number of devices that split the rows; -1: all
    c.accumulation = 1  # micro-batches per step, for less memory; the result is that of all rows
    c.remat = "none"  # what the backward pass recomputes: 'none' | 'dots' (keep matmuls) | 'full'
    c.save = "best"  # which tuned weights are kept: of the best seed | 'all' | 'none'
    return c


def logging() -> ml_collections.ConfigDict:
    """Where the curves go beside the folder of the results."""
    c = ml_collections.ConfigDict()
    # services that get the curve of each seed: 'wandb' | 'trackio' | 'mlflow', several joined by
    # ','; '': none. docs/logging.md has their settings
    c.writers = ""
    return c


def custom() -> ml_collections.ConfigDict:
    """A task of your own, with --config.tasks=custom; configs/finetune_custom.py is an example."""
    c = ml_collections.ConfigDict()
    c.kind = "classification"  # | 'regression' | 'multi_label' | 'tagging' | 'span'
    # files, globs, x.zip/member, hf:OWNER/NAME[/CONFIG][:SPLIT] or tfds:NAME:SPLIT, joined by ';'
    c.train = ""
    c.dev = ""  # likewise; '': data.dev_share of train
    c.test = ""  # likewise; labels are not needed
    c.text = ""  # column: its name in the header, or its number, counted from 0
    c.pair = ""  # column of the second text; '': single texts
    # column; for multi_label also several columns of 0 and 1, joined by commas as in `labels`
    c.label = ""
    c.id = ""  # column with a different value in every row; '': rows are numbered
    # column with the same value in all rows that are candidates of one query, such as its number or
    # its text; for the metrics ndcg_at_10, mrr_at_10 and map, which come first then; '': none
    c.query = ""
    # names of the labels, joined by commas, one with a comma in it in "..."; '': those of train
    c.labels = ""
    c.separator = ","  # between several labels in one cell
    # 'tsv' | 'csv' | 'jsonl' | 'parquet' | 'lines' | 'label_first': label, space, text; 'conll' of
    # tagging, 'squad' of span; '': by file name
    c.format = ""
    c.header = True  # whether the first line names the columns
    c.quotes = ""  # whether cells may be in "...": 'on' | 'off'; '': in CSV, but not in TSV
    c.encoding = "utf-8"  # of the files
    c.odd_rows = "refuse"  # rows with another number of cells | 'skip'
    c.metrics = ""  # joined by commas; '': those of the kind
    c.main = ""  # the metric by which the best is chosen; '': the first
    c.both_orders = False  # whether to train on every pair in the other order too
    c.label_range = ()  # regression: (lowest, highest) allowed label; (): the range of train
    c.impossible = False  # span: whether some questions have no answer
    return c
