# SPDX-License-Identifier: Apache-2.0
"""Reads what a compiler made of a step: optimised HLO text -> kernels and bytes.

`compiled.as_text()` prints computations, one instruction per line:

    ENTRY %main (p: f32[4]) -> f32[4] {
      ROOT %add.1 = f32[4]{0} fusion(%p), kind=kLoop, calls=%fused_add
    }

The text is cut into instructions; a program is then walked from its entry the way a device runs
it: into the bodies of loops (as often as they run), calls and branches, but not into a fusion,
which is one kernel. `exchanges` finds what devices exchange. Nothing here needs jax.
"""

import dataclasses
import math
import re
from collections.abc import Iterator

_FREE = {  # opcodes that only name or order values, so that nothing is launched for them
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "domain",
    "opt-barrier", "partition-id", "replica-id",
}  # fmt: skip
# Bits per element; for any other dtype they are the first number in its name, as in f32 and s8.
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128, "bf16": 16}
_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\]")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
# A kernel's own data may hold line breaks, and so lines that begin with a bracket.
_END = re.compile(r"^\}(, execution_thread=.*)?$")
_BEGIN = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OPEN, _CLOSE = "({[", ")}]"


@dataclasses.dataclass(frozen=True)
class Shape:
    """One array: bf16[4,128]."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """What it holds, without the padding of a device's layout."""
        named = re.search(r"\d+", self.dtype)
        bits = _BITS[self.dtype] if self.dtype in _BITS else int(named.group())
        return math.prod(self.dims) * bits // 8

    def __str__(self):
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation. If its result is a tuple, `shapes` has all arrays of the tuple."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    text: str  # what the brackets of the operands hold: of a parameter its number
    attributes: str
    root: bool

    @property
    def bytes(self) -> int:
        return sum(shape.bytes for shape in self.shapes)

    @property
    def source(self) -> str:
        """Where in the program it comes from, as jax names it."""
        return attribute_of(self, r'op_name="([^"]*)"') or ""

    def called(self, attribute: str) -> str | None:
        """The computation that an attribute such as `calls` names."""
        return attribute_of(self, rf"\b{attribute}=%?([\w.\-]+)")


@dataclasses.dataclass(frozen=True)
class Module:
    """Computations by name, each {name: instruction} in order; `entry` is the first to run."""

    entry: str
    computations: dict[str, dict[str, Instruction]]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Something launched: how often in one run of the program, and the bytes of one launch."""

    name: str
    opcode: str
    times: int
    bytes: int
    source: str
    cycles: int | None = None  # of one launch, as the compiler of a TPU estimates them


def parse(text: str) -> Module:
    """Parses HLO text. Raises ValueError if it has no entry computation."""
    entry, computations, current = None, {}, None
    for line in text.splitlines():
        if current is None:
            header = _HEADER.match(line)
            if header:
                current = computations[header[2]] = {}
                entry = header[2] if header[1] else entry
        elif _END.match(line):
            current = None
        else:
            instruction = _instruction(line)
            if instruction:
                current[instruction.name] = instruction

    if entry is None:
        raise ValueError("this text has no ENTRY computation; give compiled.as_text()")
    return Module(entry, computations)


def kernels(text: str) -> list[Kernel]:
    """Everything that one run of the program launches, in order.

    A kernel is an instruction that does work on a device: a fusion, custom call, copy, collective,
    sort and so on, each counted as one, whatever it is made of. It is in the entry computation, or
    in one that the entry reaches through loops, calls and branches. Not counted are parameters,
    constants, tuples and their elements, bitcasts, and the `-done` half of what was started. The
    body of a loop counts as often as the loop runs; if the compiler does not know how often, a
    ValueError is raised. All branches of a conditional are counted, although only one runs.

    The bytes of a kernel are those of its operands and results, each once, with two exceptions. If
    a fusion reads only slices or gathered rows of an operand, those are counted. If a result is an
    operand that is updated in place (dynamic-update-slice, scatter), the update is counted, for a
    scatter twice, since it is read and written. What caches save is not known here.
    """
    module = parse(text)
    return list(_walk(module, module.entry, 1))


def launches(text: str) -> int:
    """How many kernels one run of the program launches."""
    return sum(kernel.times for kernel in kernels(text))


def bytes_moved(text: str) -> int:
    """Bytes that the kernels of one run read and write; see `kernels`."""
    return sum(kernel.times * kernel.bytes for kernel in kernels(text))


def cycles_expected(text: str) -> int | None:
    """Cycles of one run, as the compiler's own cost model has them; None if it names none.

    The compiler of TPUs does so for fusions and copies, but not for transfers that run beside
    others, exchanges and custom calls, which count as nothing here.
    """
    found = [kernel.times * kernel.cycles for kernel in kernels(text) if kernel.cycles is not None]
    return sum(found) if found else None


def aliased(text: str) -> int:
    """How many results take the memory of an argument."""
    header = text[: text.index("\n")]
    begin = header.find("input_output_alias={")
    if begin < 0:
        return 0

    begin = header.index("{", begin)
    return header[begin : _closing(header, begin)].count("-alias)")


def attribute_of(x: Instruction, pattern: str) -> str | None:
    """What the group of the pattern finds in the attributes; None if it finds nothing."""
    found = re.search(pattern, x.attributes)
    return found[1] if found else None


def run_counts(module: Module) -> dict[str, int]:
    """{computation: how often it runs in one run of the program}, fusions included."""
    times: dict[str, int] = {}
    waiting = [(module.entry, 1)]
    while waiting:
        name, count = waiting.pop()
        times[name] = times.get(name, 0) + count
        for x in module.computations[name].values():
            for called in _called(x):
                if called in module.computations:
                    trips = _trips(module, module.computations[name], x) or 1
                    waiting.append((called, count * trips))
    return times


def _called(x):
    """Every computation that an instruction runs; of a loop also the condition."""
    plain = (x.called(attribute) for attribute in ("body", "condition", "to_apply", "calls"))
    return [name for name in plain if name] + (_branches(x) if x.opcode == "conditional" else [])


def _trips(module, computation, x):
    """How often an instruction runs what it calls; None if that cannot be read from the text.

    The compiler of GPUs writes the number down. That of TPUs does not; there it is known if the
    loop counts one element of its carry from one constant to another in constant steps.
    """
    if x.opcode != "while":
        return 1
    found = _TRIPS.search(x.attributes)
    if found:
        return int(found[1])

    # The condition must be `counter < end`, with the counter an element of the carry.
    condition, body = (module.computations[x.called(name)] for name in ("condition", "body"))
    compared = next(y for y in condition.values() if y.root)
    if compared.opcode != "compare" or "direction=LT" not in compared.attributes:
        return None

    counter, end = (condition[name] for name in compared.operands)
    place = attribute_of(counter, r"index=(\d+)")
    carry, result = computation[x.operands[0]], next(y for y in body.values() if y.root)
    if place is None or carry.opcode != "tuple" or result.opcode != "tuple":
        return None

    begin = _constant(computation, carry.operands[int(place)])
    limit, step = _constant(condition, end.name), _increment(body, result.operands[int(place)])
    if None in (begin, limit, step):
        return None
    return max(0, -((begin - limit) // step))  # (limit - begin) / step, rounded up


def _uncopied(computation, name):
    """The instruction that a name refers to, looked up through copies."""
    x = computation[name]
    while x.opcode in ("copy", "bitcast"):
        x = computation[x.operands[0]]
    return x


def _constant(computation, name):
    """The whole number that a name stands for; None if it is no constant."""
    x = _uncopied(computation, name)
    return int(x.text) if x.opcode == "constant" and re.fullmatch(r"-?\d+", x.text) else None


def _increment(computation, name):
    """What is added to a number of the carry; None if something else happens to it."""
    x = _uncopied(computation, name)
    if x.opcode != "add":
        return None
    added = [_constant(computation, operand) for operand in x.operands]
    kinds = {_uncopied(computation, operand).opcode for operand in x.operands}
    if kinds != {"get-tuple-element", "constant"}:
        return None
    return next((number for number in added if number is not None and number > 0), None)


def _walk(module, name, times) -> Iterator[Kernel]:
    """Yields the kernels of a computation that runs so many times, and of those that it runs."""
    computation = module.computations[name]
    for x in computation.values():
        if x.opcode in _FREE or x.opcode.endswith(("-done", "-update")):
            continue

        if x.opcode == "while":
            trips = _trips(module, computation, x)
            if trips is None:
                raise ValueError(f"{x.name}: how often this loop runs is not in the text")
            yield from _walk(module, x.called("body"), times * trips)
        elif x.opcode == "call":
            yield from _walk(module, x.called("to_apply"), times)
        elif x.opcode == "conditional":
            for branch in _branches(x):
                yield from _walk(module, branch, times)
        else:
            cycles = attribute_of(x, r'"estimated_cycles":"(\d+)"')
            moved = _moved(module, computation, x)
            yield Kernel(x.name, x.opcode, times, moved, x.source, cycles and int(cycles))


def _branches(x):
    """The computations of which a conditional runs one."""
    listed = attribute_of(x, r"branch_computations=\{([^}]*)\}")
    if listed is not None:
        return [name.strip().removeprefix("%") for name in listed.split(",")]
    return [x.called("true_computation"), x.called("false_computation")]


def _moved(module, computation, x):
    """Bytes read and written by one launch of a kernel."""
    if x.opcode in ("copy-start", "slice-start"):  # its shapes hold the operand and the result
        return 2 * x.shapes[0 if x.opcode == "copy-start" else -2].bytes

    # Any other kernel counts as a fusion of itself alone.
    body = module.computations.get(x.called("calls")) if x.opcode == "fusion" else None
    if body is None:
        inputs = {f"p{n}": _parameter(f"p{n}", n, computation[o]) for n, o in enumerate(x.operands)}
        alone = dataclasses.replace(x, operands=tuple(inputs), root=True)
        body = inputs | {x.name: alone}

    users = {}
    for user in body.values():
        for operand in user.operands:
            users.setdefault(operand, []).append(user)

    # The same buffer is read once, even if it is given twice.
    parameters = {int(y.text): y for y in body.values() if y.opcode == "parameter"}
    first = {}
    for n, operand in enumerate(x.operands):
        first.setdefault(operand, n)
    read = sum(_read(parameters[n], users) for n in first.values())

    root = next(y for y in body.values() if y.root)
    results = [body[o] for o in root.operands] if root.opcode == "tuple" else [root]
    return read + sum(_written(result, body) for result in results)


def _parameter(name, number, operand):
    """A parameter of a fusion, which holds an operand."""
    return Instruction(name, "parameter", operand.shapes, (), str(number), "", False)


def _read(x, users):
    """Bytes that a fusion reads of its parameter `x`, by what its instructions do with it."""
    total = 0
    for user in users.get(x.name, []):
        if user.opcode == "bitcast":
            total += _read(user, users)
        elif user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == x.name:
            total += user.bytes
        elif user.opcode in ("dynamic-update-slice", "scatter") and user.operands[0] == x.name:
            total += 0  # updated in place, which `_written` counts
        else:
            return x.bytes
    return min(total, x.bytes)


def _written(x, body):
    """Bytes written for a result; of a parameter that is updated in place those of the update."""
    while x.opcode == "bitcast":
        x = body[x.operands[0]]
    if x.opcode not in ("dynamic-update-slice", "scatter"):
        return x.bytes

    target = x
    while target.opcode in ("dynamic-update-slice", "scatter", "bitcast"):
        target = body[target.operands[0]]
    if target.opcode != "parameter":
        return x.bytes

    if x.opcode == "scatter":
        return 2 * body[x.operands[-1]].bytes
    return body[x.operands[1]].bytes


def _instruction(line):
    """Parses `[ROOT] %NAME = SHAPES OPCODE(OPERANDS), ATTRIBUTES`; None for any other line."""
    begin = _BEGIN.match(line)
    if not begin:
        return None

    # The result is one shape, or several in brackets if it is a tuple.
    at = begin.end()
    end = _closing(line, at) if line[at] == "(" else line.index(" ", at)
    shapes = tuple(
        Shape(dtype, tuple(map(int, filter(None, dims.split(",")))))
        for dtype, dims in _SHAPE.findall(line[at:end])
    )

    bracket = line.index("(", end)
    close = _closing(line, bracket)
    inside = line[bracket + 1 : close - 1]
    return Instruction(
        name=begin[2],
        opcode=line[end:bracket].strip(),
        shapes=shapes,
        operands=tuple(re.findall(r"%([\w.\-]+)", inside)),
        text=inside,
        attributes=line[close:],
        root=bool(begin[1]),
    )


def _closing(line, at):
    """The position after the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(line)):
        depth += (line[place] in _OPEN) - (line[place] in _CLOSE)
        if depth == 0:
            return place + 1
    raise ValueError(f"a bracket is not closed: {line[at : at + 80]}")
