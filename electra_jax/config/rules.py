# SPDX-License-Identifier: Apache-2.0
"""Rules that involve more than one setting. Each error is one line with the remedy."""

import dataclasses

from electra_jax.config import compiler_options
from electra_jax.config.fields import SERVICES, Config, declared
from electra_jax.config.parsing import ConfigError, nearest
from electra_jax.config.reads import READS, WITHOUT_GENERATOR, evaluated

# objective -> the values of `model.sharing` that it supports. All others support every value, or
# have no generator and do not read it.
_SHARING = {
    "decoupled_detection": ("embeddings", "none", "gdes"),
    "frozen_generator": ("none", "gdes"),
    "electric": ("embeddings",),
    "replace_mlm": ("embeddings", "none"),
    "all_tokens_mlm": ("embeddings", "none"),
}

# Objectives whose discriminator has a second head -> the weight of its loss.
_SECOND_HEADS = {"multi_word_selection": "selection_weight", "corrective_lm": "mlm_weight"}


def check(c: Config) -> None:
    """Checks all settings that depend on each other.

    Raises ConfigError for the first ones that do not fit together.
    """
    _check_networks(c)
    _check_objective(c)
    _check_head(c)
    _check_shared_layers(c)
    _check_init(c)
    _check_rows(c)
    _check_streaming(c)
    _check_stages(c)
    _check_budget(c)
    _check_optimizer(c)
    _check_best(c)
    _check_logging(c)
    _check_text(c)
    _check_mesh(c)


def _check_networks(c: Config) -> None:
    """Checks width, heads and attention of both networks."""
    for name in ("discriminator", "generator"):
        network = getattr(c.model, name)
        if network.width % network.heads:
            raise ConfigError(
                f"model.{name}.width={network.width} is not divisible by heads={network.heads};"
                f" try width={network.width // network.heads * network.heads or network.heads}"
            )
        if c.model.positions == "rotary" and network.width // network.heads % 2:
            raise ConfigError(
                f"model.positions='rotary' turns channels in pairs, but heads of model.{name} have"
                f" {network.width // network.heads}; change width or heads"
            )

    if c.model.attention == "splash" and c.model.attention_dropout > 0:
        raise ConfigError(
            "model.attention='splash' cannot drop attention probabilities, but"
            f" model.attention_dropout={c.model.attention_dropout}; set it to 0 or try"
            " model.attention=auto"
        )


def _check_objective(c: Config) -> None:
    """Checks that objective, sharing, shapes and masking fit together."""
    o, sharing = c.objective, c.model.sharing
    allowed = _SHARING.get(o.name, declared(Config)["model.sharing"].metadata["choices"])
    if sharing not in allowed:
        raise ConfigError(
            f"model.sharing={sharing!r} does not go with objective.name={o.name!r};"
            f" try {' or '.join(map(repr, allowed))}"
        )

    least, _ = declared(Config)["objective.temperature"].metadata["bounds"]
    if 0 < o.first_temperature < least:
        raise ConfigError(
            f"objective.first_temperature={o.first_temperature} is colder than {least:g}, the"
            " least of objective.temperature; take 0 for one temperature from the start"
        )

    alone = o.name in WITHOUT_GENERATOR  # `sharing` is not read then, which is a warning only
    if sharing == "all" and not alone and c.model.generator != c.model.discriminator:
        raise ConfigError(
            f"model.sharing='all' needs networks of one shape, not {c.model.generator} and"
            f" {c.model.discriminator}; set model.generator to the discriminator's"
        )

    shown = o.mask_token_rate + o.random_token_rate
    if shown > 1:
        raise ConfigError(
            f"objective.mask_token_rate={o.mask_token_rate} and random_token_rate="
            f"{o.random_token_rate} make {shown:g}, more than 1; BERT has 0.8 and 0.1"
        )

    if o.name == "frozen_generator" and not c.init.generator_from:
        raise ConfigError(
            "objective.name='frozen_generator' needs a trained generator; give"
            " init.generator_from a workdir with one"
        )


def _check_head(c: Config) -> None:
    """Checks that something trains the encoder's last layer, which is what is fine-tuned."""
    o = c.objective
    if c.model.discriminator_head != "own_layer" or "model.discriminator_head" not in READS[o.name]:
        return

    untrained = (
        "model.discriminator_head='own_layer' leaves the encoder's last layer untrained with"
    )
    weight = _SECOND_HEADS.get(o.name)
    if weight is None:
        raise ConfigError(
            f"{untrained} objective.name={o.name!r}; try 'token' or 'cls_context', or"
            f" objective.name={next(iter(_SECOND_HEADS))!r}, which trains it"
        )
    if not getattr(o, weight):
        raise ConfigError(f"{untrained} objective.{weight}=0; give it a weight, or take 'token'")


def _check_shared_layers(c: Config) -> None:
    """Checks that both networks can share their lowest layers, if they are to."""
    count, model = c.model.shared_layers, c.model
    if not count or "model.shared_layers" not in READS[c.objective.name]:
        return  # where it is not read it is a warning only

    named = f"model.shared_layers={count}"
    if model.sharing != "embeddings":
        raise ConfigError(
            f"{named} needs model.sharing='embeddings', not {model.sharing!r}; set it to 0"
        )
    most = min(model.generator.layers - 1, model.discriminator.layers)
    if count > most:
        raise ConfigError(
            f"{named} is more than {most}: a generator of {model.generator.layers} layers needs one"
            f" of its own, and the discriminator has {model.discriminator.layers}"
        )
    shapes = [dataclasses.replace(x, layers=0) for x in (model.generator, model.discriminator)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"{named} needs networks that differ in their number of layers alone, not"
            f" {model.generator} and {model.discriminator}; give model.generator the"
            " discriminator's width, heads and feed_forward"
        )
    if c.init.generator_from or c.init.missing_generator != "fresh":
        raise ConfigError(
            f"{named} leaves no place for a generator's own lowest layers, which"
            " init.generator_from and init.missing_generator='discriminator' give it; leave them"
            " out, or set it to 0"
        )


def _check_init(c: Config) -> None:
    """Raises ConfigError for a setting of the section `init` that would have no effect."""
    settings = {
        "new_tokens": ("refuse", c.init.from_ or c.init.generator_from),
        "missing_generator": ("fresh", c.init.from_),
        "optimizer": ("fresh", c.init.from_),
    }
    for name, (plain, source) in settings.items():
        value = getattr(c.init, name)
        if value != plain and not source:
            raise ConfigError(
                f"init.{name}={value!r} changes nothing without weights to start from; give"
                f" init.from, or leave it at {plain!r}"
            )

    if c.init.generator_from and c.objective.name in WITHOUT_GENERATOR:
        raise ConfigError(
            f"init.generator_from={c.init.generator_from!r} gives a generator, which"
            f" objective.name={c.objective.name!r} does not train; leave it out"
        )
    if c.init.generator_from and c.model.sharing == "all":
        raise ConfigError(
            f"init.generator_from={c.init.generator_from!r} gives a generator with an encoder of"
            " its own, for which model.sharing='all' has no place; give init.from, or another"
            " sharing"
        )

    if c.init.missing_generator == "discriminator":
        why = {
            f"objective.name={c.objective.name!r} has no generator": WITHOUT_GENERATOR,
            "the generator of objective.name='electric' has two towers": ("electric",),
        }
        reason = next((text for text, names in why.items() if c.objective.name in names), None)
        if c.model.sharing == "all":
            reason = "with model.sharing='all' it has the discriminator's encoder already"
        if c.init.generator_from:
            reason = "init.generator_from names one"
        if reason:
            raise ConfigError(
                f"init.missing_generator='discriminator' changes nothing: {reason}; leave it at"
                " 'fresh'"
            )


def _check_rows(c: Config) -> None:
    """Checks length and number of the rows of a step."""
    if c.model.positions == "learned" and c.data.sequence_length > c.model.max_positions:
        raise ConfigError(
            f"data.sequence_length={c.data.sequence_length} is longer than"
            f" model.max_positions={c.model.max_positions}; raise max_positions or shorten the rows"
        )
    if c.data.batch_size % c.schedule.accumulation:
        raise ConfigError(
            f"data.batch_size={c.data.batch_size} is not divisible by"
            f" schedule.accumulation={c.schedule.accumulation}"
        )


def _check_streaming(c: Config) -> None:
    """Checks that rows can be trained on before all text is prepared, if that is asked for."""
    if c.data.streaming == "off":
        return

    needs = "set data.streaming=off, with which all text is prepared first"
    sources = [part for part in c.data.source.split(";") if part.strip()]
    if len(sources) > 1:
        raise ConfigError(
            f"data.streaming='on' reads one source, and data.source={c.data.source!r} has"
            f" {len(sources)}; {needs}"
        )
    if c.schedule.stages:
        raise ConfigError(
            "data.streaming='on' prepares rows of one length, and schedule.stages="
            f"{c.schedule.stages!r} changes them; {needs}"
        )
    if c.data.deduplicate:
        raise ConfigError(
            "data.deduplicate=True compares all documents before the first row is made, so"
            f" data.streaming='on' cannot begin; {needs}"
        )


def _check_stages(c: Config) -> None:
    """Checks each stage by itself, and that their shares of the budget rise."""
    before = 0.0
    for stage in c.schedule.stages:
        if not (isinstance(stage, tuple) and [type(x) for x in stage] == [float, int, int]):
            raise ConfigError(
                f"schedule.stages={c.schedule.stages!r} holds {stage!r}, which is not (share of the"
                " budget, sequence_length, batch_size); try ((0.9, 512, 32),)"
            )

        share, length, batch_size = stage
        if not before < share < 1:
            raise ConfigError(
                f"schedule.stages: {stage} begins at a share of {share}; give shares that rise"
                f" between {before:g} and 1"
            )
        for field, value in (("sequence_length", length), ("batch_size", batch_size)):
            low, high = declared(Config)[f"data.{field}"].metadata["bounds"]
            if not low <= value <= high:
                raise ConfigError(
                    f"schedule.stages: {field} of {stage} is outside [{low}, {high}]; stages are"
                    " (share, sequence_length, batch_size)"
                )

        if c.model.positions == "learned" and length > c.model.max_positions:
            raise ConfigError(
                f"schedule.stages: rows of {length} in {stage} are longer than"
                f" model.max_positions={c.model.max_positions}; raise max_positions to {length} or"
                " set model.positions='rotary'"
            )
        if batch_size % c.schedule.accumulation:
            raise ConfigError(
                f"schedule.stages: {batch_size} rows per step in {stage} are not divisible by"
                f" schedule.accumulation={c.schedule.accumulation}"
            )
        before = share


def _check_budget(c: Config) -> None:
    """Checks that `tokens` or `minutes` is above 0 if it is the budget, and 0 if it is not."""
    for budget in ("tokens", "minutes"):
        given = getattr(c.schedule, budget)
        if (c.schedule.budget == budget) != (given > 0):
            raise ConfigError(
                f"schedule.{budget}={given} with schedule.budget={c.schedule.budget!r}; give"
                f" {budget} above 0 where they are the budget, and 0 where they are not"
            )


def _check_optimizer(c: Config) -> None:
    """Checks that Muon's rates are given to Muon."""
    names = ("muon_learning_rate", "disc_muon_learning_rate")
    given = {name: rate for name in names if (rate := getattr(c.optimizer, name))}
    if given and c.optimizer.name != "muon":
        said = " and ".join(f"optimizer.{name}={rate}" for name, rate in given.items())
        raise ConfigError(
            f"{said} {'do' if len(given) > 1 else 'does'} nothing with"
            f" optimizer.name={c.optimizer.name!r}; take 0, or set optimizer.name='muon'"
        )


def _check_logging(c: Config) -> None:
    """Checks the steps of a profile and the services that a run logs to."""
    profile = c.logging.profile
    if profile and not (
        len(profile) == 2 and all(type(n) is int for n in profile) and 1 <= profile[0] <= profile[1]
    ):
        raise ConfigError(
            f"logging.profile={profile!r} is not (first step, last step);"
            " try (10, 12), or () for none"
        )

    check_services(c.logging.writers)


def check_services(names: str) -> None:
    """Raises ConfigError if logging.writers names what is no service, or one twice."""
    named = names.split(",") if names else []
    for number, name in enumerate(named):
        if name not in SERVICES:
            raise ConfigError(
                f"logging.writers={names!r}: {name!r} is no service;"
                f" {nearest(name, list(SERVICES))}; several are joined by ',', '' is none"
            )
        if name in named[:number]:
            raise ConfigError(f"logging.writers={names!r} names {name} twice")


def _check_best(c: Config) -> None:
    """Checks that every checkpoint has the metric by which the best one is kept."""
    metric, name = c.checkpoint.keep_best, c.objective.name
    if not metric:
        return
    if metric not in evaluated(name):
        raise ConfigError(
            f"checkpoint.keep_best={metric!r} is no metric of objective.name={name!r}; try"
            f" {' or '.join(evaluated(name))}"
        )
    if c.checkpoint.every % c.evaluation.every:
        raise ConfigError(
            f"checkpoint.keep_best={metric!r} needs an evaluation at each checkpoint, and"
            f" checkpoint.every={c.checkpoint.every} is no multiple of"
            f" evaluation.every={c.evaluation.every}; try evaluation.every={c.checkpoint.every}"
        )


def _check_text(c: Config) -> None:
    """Checks that text and vocabulary are named."""
    if not c.data.source.strip():
        raise ConfigError("data.source is empty; try builtin, text:GLOB or hf:OWNER/NAME")
    if not c.data.vocab.strip():
        raise ConfigError("data.vocab is empty; try train:sentencepiece:8192 or a path")
    if c.data.added_pieces and c.data.vocab.startswith("train:"):
        raise ConfigError(
            f"data.added_pieces={c.data.added_pieces} adds to a vocab.txt, and"
            f" data.vocab={c.data.vocab!r} trains a vocabulary; make that larger, or name a file"
        )


def _check_mesh(c: Config) -> None:
    """Checks the axes of the mesh, its slices, and how the compiler's options are written."""
    for axis in ("data", "fsdp", "tensor"):
        size = getattr(c.mesh, axis)
        if size < 1 and not (axis == "data" and size == -1):
            raise ConfigError(f"mesh.{axis}={size} must be positive (mesh.data may be -1)")
    if c.mesh.slices and c.mesh.data != -1 and c.mesh.data % c.mesh.slices:
        raise ConfigError(
            f"mesh.data={c.mesh.data} copies of the model cannot be shared out evenly over"
            f" mesh.slices={c.mesh.slices}; set mesh.data=-1 or to a multiple of {c.mesh.slices}"
        )
    if c.mesh.compiler_options != "auto":
        compiler_options.parse(c.mesh.compiler_options)
