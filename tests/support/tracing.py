# SPDX-License-Identifier: Apache-2.0
"""What a traced program does with its keys and its inputs, found without compiling it.

`derivations` walks a program with the inputs that are known, as a row's number is, and the values
that follow from them; everything else stays unknown. So it meets every key with its real value, and
says which keys were made from which, and which were drawn from. `read` says which inputs a program
depends on, and `text` compares two programs, both after what nothing needs is left out.
"""

import dataclasses
import re

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval

_UNKNOWN = object()


@dataclasses.dataclass
class Derivations:
    """Keys as pairs of words."""

    made: dict  # key -> {(its parent, 'fold_in' or 'split', the number)}
    drawn: list  # (key, bits a number, shape), one for each time that numbers are drawn from a key

    @property
    def parents(self) -> set:
        """Keys that others were made from."""
        return {parent for ways in self.made.values() for parent, _, _ in ways}


def derivations(function, known: tuple, unknown: tuple = ()) -> Derivations:
    """All keys of `function(*known, *unknown)`."""
    closed = jax.make_jaxpr(function)(*known, *unknown)
    needed, used = _without_the_dead(closed)
    values = [*jax.tree.leaves(known), *(_UNKNOWN for _ in jax.tree.leaves(unknown))]
    found = Derivations({}, [])
    values = [x for x, is_used in zip(values, used, strict=True) if is_used]
    _walk(needed, closed.consts, values, found)
    return found


def read(function, *arguments) -> list[bool]:
    """Of each leaf of the arguments, whether a result depends on it."""
    closed = jax.make_jaxpr(function)(*arguments)
    return _without_the_dead(closed)[1]


def text(function, *arguments) -> str:
    """The program, with its constants, and without what no result needs."""
    closed = jax.make_jaxpr(function)(*arguments)
    needed, _ = _without_the_dead(closed)
    names = {str(atom) for eqn in needed.eqns for atom in eqn.invars}
    consts = [
        np.asarray(x).tobytes()
        for variable, x in zip(needed.constvars, closed.consts, strict=True)
        if str(variable) in names
    ]
    return re.sub(r"0x[0-9a-f]+", "", f"{needed}\n{consts}")  # where functions lie in memory


def _without_the_dead(closed):
    """(the program as far as its results need it, which inputs they need)."""
    return partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))


def _words(keys):
    """Each key of an array as a pair of integers."""
    return [tuple(words) for words in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()]


def _walk(jaxpr, consts, values, found):
    """Values of the results, unknown where they follow from an unknown input."""
    known = dict(zip(jaxpr.constvars, consts)) | dict(zip(jaxpr.invars, values, strict=True))

    def value(atom):
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        inputs = [value(atom) for atom in eqn.invars]
        outputs = _equation(eqn, inputs, found)
        known |= dict(zip(eqn.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _equation(eqn, inputs, found):
    name, params = eqn.primitive.name, eqn.params
    nothing = [_UNKNOWN] * len(eqn.outvars)
    unknown = any(x is _UNKNOWN for x in inputs)

    if name.startswith("random_") and unknown:
        if inputs[0] is _UNKNOWN and name in ("random_bits", "random_split", "random_fold_in"):
            raise AssertionError(f"a key that depends on data or cannot be followed: {eqn}")
        return nothing
    if name == "random_bits":
        shape = params["bit_width"], tuple(params["shape"])
        found.drawn += [(key, *shape) for key in _words(inputs[0])]
        return nothing  # no key is made of what is drawn

    inner = _inner(params)
    if name == "scan":
        return _scan(params, inputs, found)
    if len(inner) == 1 and len(inner[0].jaxpr.invars) == len(inputs):
        return _walk(inner[0].jaxpr, inner[0].consts, inputs, found)
    if inner and name not in ("reduce", "sort", "scatter", "scatter-add"):
        assert not any("random_" in str(each.jaxpr) for each in inner), f"not followed: {name}"
        return nothing
    if unknown:
        return nothing

    outputs = eqn.primitive.bind(*inputs, **params)
    outputs = outputs if eqn.primitive.multiple_results else [outputs]
    if name == "random_fold_in":
        _note(found, name, *np.broadcast_arrays(*_lists(inputs[0], outputs[0])), inputs[1])
    elif name == "random_split":
        parents = _words(inputs[0])
        count = len(_words(outputs[0])) // len(parents)
        for place, child in enumerate(_words(outputs[0])):
            parent = parents[place // count]
            found.made.setdefault(child, set()).add((parent, "split", place % count))
    return outputs


def _lists(parents, children):
    children = np.array(_words(children)).reshape(*np.shape(children), 2)
    return np.array(_words(parents)).reshape(*np.shape(parents), 2), children


def _note(found, name, parents, children, numbers):
    numbers = np.broadcast_to(np.asarray(numbers), parents.shape[:-1]).reshape(-1)
    pairs = parents.reshape(-1, 2).tolist(), children.reshape(-1, 2).tolist(), numbers.tolist()
    for parent, child, number in zip(*pairs, strict=True):
        way = tuple(parent), name.removeprefix("random_"), number
        found.made.setdefault(tuple(child), set()).add(way)


def _scan(params, inputs, found):
    """Turn by turn, for the keys of a layer come with it."""
    consts, carried = params["num_consts"], params["num_carry"]
    closed, outputs = params["jaxpr"], []
    carry = inputs[consts : consts + carried]
    for turn in range(params["length"]):
        rows = [x if x is _UNKNOWN else x[turn] for x in inputs[consts + carried :]]
        outputs = _walk(closed.jaxpr, closed.consts, [*inputs[:consts], *carry, *rows], found)
        carry = outputs[:carried]
    rest = len(closed.jaxpr.outvars) - carried
    return [*carry, *(_UNKNOWN for _ in range(rest))]


def _inner(params):
    """The programs within an equation, closed."""
    leaves = [leaf for value in params.values() for leaf in _several(value)]
    closed = [x for x in leaves if isinstance(x, core.ClosedJaxpr)]
    return closed + [core.ClosedJaxpr(x, ()) for x in leaves if isinstance(x, core.Jaxpr)]


def _several(value):
    return value if isinstance(value, (tuple, list)) else (value,)
