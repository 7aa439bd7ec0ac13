"""What a compiled module does in one run, counted in its text: loops with their trip counts, unlike the
compiler's own cost analysis, which counts a loop's body once.

Counted for one device: floating-point operations of dots, convolutions and known kernels; bytes that
collectives bring to the device; custom kernels by name; bytes read and written by the operations that run one
after another (a fusion reads its operands and writes its result).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4,
          "s64": 8, "u64": 8, "f64": 8, "f8e4m3fn": 1, "f8e5m2": 1}  # fmt: skip
_COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "ragged-all-to-all", "all-to-all",
                "collective-permute")  # fmt: skip
# Operations that move nothing: names for what is there already, and ends of what began elsewhere.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional",
         "after-all", "partition-id", "replica-id", "opt-barrier", "iota", "call-start",
         "async-start"}  # fmt: skip
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_BEGIN = re.compile(r"\s*(ROOT )?%[\w.\-]+ = |.*\{$|$|HloModule")  # of a line that continues no other
_END = re.compile(r"\}(, execution_thread=.*)?$")  # of a computation
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")

_PLACED = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^}]*\})?")

Shape = tuple[str, tuple[int, ...]]


@dataclass
class Cost:
    """Totals of a run on one device."""

    flops: float = 0.0
    bytes: float = 0.0
    collective_bytes: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)

    def add(self, other: Cost, times: float = 1) -> None:
        """Add so many runs of something."""
        self.flops += other.flops * times
        self.bytes += other.bytes * times
        for mine, theirs in (
            (self.collective_bytes, other.collective_bytes),
            (self.collectives, other.collectives),
            (self.kernels, other.kernels),
        ):
            for name, value in theirs.items():
                mine[name] += value * times  # type: ignore[assignment]


@dataclass(frozen=True)
class Instruction:
    """A line of a computation: `rest` is what follows the opening parenthesis."""

    name: str
    type: str
    op: str
    rest: str

    @cached_property
    def operands(self) -> list[str]:
        """Names of the operands."""
        depth = 1
        for end, char in enumerate(self.rest):
            depth += (char in "({[") - (char in ")}]")
            if depth == 0:
                return re.findall(r"%([\w.\-]+)", self.rest[:end])
        return []

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of the result; of a tuple, all."""
        return _shapes(self.type)

    def attribute(self, name: str) -> str | None:
        """The value of `name=...`, up to the next comma outside of brackets."""
        found = re.search(
            rf"\b{name}=(\{{[^}}]*\}}|\[[^\]]*\](?:<=\[[^\]]*\])?(?:T\([\d,]*\))?|[^,\s]+)", self.rest
        )
        return found.group(1) if found else None


def _lines(text: str) -> Iterator[str]:
    """The module's lines; an attribute that was printed over several is joined."""
    whole: list[str] = []
    for line in text.splitlines():
        if whole and (_END.match(line) or _BEGIN.match(line)):
            yield "".join(whole)
            whole = []
        whole.append(line)
    yield "".join(whole)


def _shapes(text: str) -> list[Shape]:
    return [
        (kind, tuple(int(size) for size in sizes.split(",") if size))
        for kind, sizes in _SHAPE.findall(text)
        if kind in _BYTES
    ]


def _off_chip(text: str) -> list[Shape]:
    """Shapes in the chip's main memory: a layout with S(n) is of another one."""
    found = _PLACED.findall(text)
    return [
        (kind, tuple(int(size) for size in sizes.split(",") if size))
        for kind, sizes, layout in found
        if kind in _BYTES and "S(" not in layout
    ]


def _size(shapes: list[Shape]) -> int:
    return sum(_BYTES[kind] * math.prod(sizes) for kind, sizes in shapes)


# (kernel name, shapes of operands, shapes of results) -> floating-point operations
KernelFlops = Callable[[str, list[Shape], list[Shape]], float]


class Module:
    """A compiled module's text, taken apart. Raises ValueError where a loop's trip count is not known."""

    def __init__(self, text: str, kernel_flops: KernelFlops = lambda *_: 0.0):
        self.kernel_flops = kernel_flops
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        current: dict[str, Instruction] | None = None
        for line in _lines(text):
            if current is None:
                found = _COMPUTATION.match(line)
                if found:
                    current = self.computations[found.group(2)] = {}
                    self.entry = found.group(2) if found.group(1) else self.entry
            elif _END.match(line):
                current = None
            elif found := _INSTRUCTION.match(line):
                instruction = Instruction(*found.groups())
                current[instruction.name] = instruction
        self._costs: dict[tuple[str, bool], Cost] = {}

    def cost(self, name: str | None = None, fused: bool = False) -> Cost:
        """Of one run of a computation (default: the whole module). `fused`: its results stay on chip."""
        name = name or self.entry
        if (name, fused) not in self._costs:
            total = Cost()
            for instruction in self.computations[name].values():
                total.add(*self._one(instruction, self.computations[name], fused))
            self._costs[name, fused] = total
        return self._costs[name, fused]

    def _one(self, line: Instruction, scope: dict[str, Instruction], fused: bool) -> tuple[Cost, float]:
        cost, op = Cost(), line.op
        if op == "while":
            body, condition = line.attribute("body"), line.attribute("condition")
            assert body and condition
            return self.cost(body.lstrip("%"), fused), self._trips(line, condition.lstrip("%"))
        if op == "conditional":
            branches = re.findall(r"%([\w.\-]+)", line.attribute("branch_computations") or "")
            branches += [
                b.lstrip("%") for b in map(line.attribute, ("true_computation", "false_computation")) if b
            ]
            return max((self.cost(branch, fused) for branch in branches), key=lambda c: c.flops), 1
        kind = next((kind for kind in _COLLECTIVES if op in (kind, f"{kind}-start")), None)
        called = line.attribute("calls") or line.attribute("to_apply")
        if kind:
            cost.collectives[kind] += 1
            cost.collective_bytes[kind] += _collective_bytes(kind, line, scope)  # type: ignore[assignment]
        elif called and op in ("fusion", "call", "call-start", "async-start"):
            cost.add(self.cost(called.lstrip("%"), fused or op == "fusion"))
        elif op in ("dot", "convolution"):
            cost.flops = (_dot_flops if op == "dot" else _convolution_flops)(line, scope)
        elif op == "custom-call" and "tpu_custom_call" in line.rest:
            kernel = _kernel_name(line)
            cost.kernels[kernel] += 1
            cost.flops = self.kernel_flops(kernel, _operand_shapes(line, scope), line.shapes)
        if not fused and op not in _FREE and not op.endswith("-done"):
            fusion = called.lstrip("%") if called and op == "fusion" else ""
            cost.bytes += self._traffic(line, scope, fusion)
        return cost, 1

    def _traffic(self, line: Instruction, scope: dict[str, Instruction], called: str) -> float:
        """Bytes that main memory gives and takes; of a large operand that is only sliced, the slice."""
        if line.op in ("dynamic-slice", "gather", "slice"):
            return 2 * _size(line.shapes)
        if line.op in ("copy-start", "slice-start"):  # between memories: one side of it is on the chip
            return _size(line.shapes[:1])
        if line.op == "dynamic-update-slice":
            return 2 * _size(scope[line.operands[1]].shapes)
        inner = self.computations[called] if called else {}
        parameters = {int(i.rest.split(")")[0]): i.name for i in inner.values() if i.op == "parameter"}
        total = 0.0
        for index, operand in enumerate(line.operands):
            full = _size(_off_chip(scope[operand].type)) if operand in scope else 0
            users = [i for i in inner.values() if parameters.get(index) in i.operands]
            if users and all(_reads_part(i, parameters[index]) for i in users):
                # What is updated in place is not read, and below only the update is written.
                sliced = [i for i in users if i.op != "dynamic-update-slice"]
                full = min(full, sum(_size(i.shapes) for i in sliced))
            total += full
        written = _size(_off_chip(line.type))
        updates = [i for i in inner.values() if i.op == "dynamic-update-slice"]
        if updates and len(updates) == len(line.shapes):
            sizes = [_size(inner[i.operands[1]].shapes) for i in updates if i.operands[1] in inner]
            written = min(written, sum(sizes))
        return total + written

    def _trips(self, line: Instruction, condition: str) -> int:
        found = re.search(r'"known_trip_count":\{"n":"(\d+)"', line.rest)
        if found:
            return int(found.group(1))
        numbers = [
            int(i.rest.split(")")[0])
            for i in self.computations[condition].values()
            if i.op == "constant" and i.type.startswith(("s32[]", "u32[]"))
        ]
        if len(numbers) != 1:
            raise ValueError(f"loop {line.name}: its trip count is not known")
        return numbers[0]


def _reads_part(line: Instruction, operand: str) -> bool:
    """Whether an instruction needs only a part of an operand, or writes into its place."""
    if line.op == "dynamic-update-slice":
        return line.operands[0] == operand
    return line.op in ("dynamic-slice", "gather")


def _operand_shapes(line: Instruction, scope: dict[str, Instruction]) -> list[Shape]:
    return [shape for name in line.operands if name in scope for shape in scope[name].shapes]


def _kernel_name(line: Instruction) -> str:
    """The function that `pallas_call` was given a name by, or the last part of the operation's path."""
    found = re.search(r'kernel_name\s*=\s*"?([\w.\-]+)', line.rest) or re.search(
        r'op_name="([^"]*)"', line.rest
    )
    path = found.group(1) if found else line.name
    parts = [part for part in path.split("/") if part not in ("pallas_call", "tpu_custom_call")]
    return re.sub(r"^(jit|jvp|transpose)\((.*)\)$", r"\2", parts[-1]) if parts else line.name


def _group_size(line: Instruction) -> int:
    text = line.attribute("replica_groups") or ""
    if found := re.match(r"\[(\d+),(\d+)\]", text):
        return int(found.group(2))
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", line.rest):
        return found.group(1).count(",") + 1
    return 1


def _collective_bytes(kind: str, line: Instruction, scope: dict[str, Instruction]) -> float:
    """Bytes that arrive at a device, by the ring algorithms; an all-reduce is a scatter and a gather."""
    sent = _size([shape for name in line.operands for shape in scope[name].shapes])
    share = 1 - 1 / max(_group_size(line), 1)
    if kind == "all-gather":
        return sent * (_group_size(line) - 1)
    if kind == "all-reduce":
        return 2 * sent * share
    if kind in ("collective-permute", "ragged-all-to-all"):
        return sent
    return sent * share


def _dot_flops(line: Instruction, scope: dict[str, Instruction]) -> float:
    left = scope[line.operands[0]].shapes[0][1]
    contracted = [int(d) for d in re.findall(r"\d+", line.attribute("lhs_contracting_dims") or "")]
    return 2.0 * math.prod(line.shapes[0][1]) * math.prod(left[d] for d in contracted)


def _convolution_flops(line: Instruction, scope: dict[str, Instruction]) -> float:
    """2 x output features x batch x input features of a group x, for each spatial dimension, the pairs of
    output and window places that meet an input (a TPU writes batched products as dilated windows).
    """
    labels = re.match(r"(\w+)_(\w+)->(\w+)", line.attribute("dim_labels") or "")
    assert labels is not None
    left, right, out = labels.groups()
    lhs, rhs = (scope[name].shapes[0][1] for name in line.operands[:2])
    result = line.shapes[0][1]
    window = dict(re.findall(r"(\w+)=(\S+)", (re.search(r"window=\{([^}]*)\}", line.rest) or ["", ""])[1]))
    flops = 2.0 * result[out.index("b")] * result[out.index("f")] * rhs[right.index("i")]
    for place, digit in enumerate(sorted(c for c in left if c.isdigit())):

        def of(name: str, default: str = "1", place: int = place) -> str:
            return window[name].split("x")[place] if name in window else default

        low = int(of("pad", "0_0").split("_")[0])
        stride, dilate, spread = int(of("stride")), int(of("lhs_dilate")), int(of("rhs_dilate"))
        reach = (lhs[left.index(digit)] - 1) * dilate
        pairs = 0
        for k in range(int(of("size"))):
            pairs += _meeting(result[out.index(digit)], stride, k * spread - low, reach, dilate)
        flops *= pairs
    return flops


def _meeting(outputs: int, stride: int, shift: int, reach: int, dilate: int) -> int:
    """How many o in [0, outputs) have 0 <= o * stride + shift <= reach, a multiple of dilate."""
    return sum(
        0 <= o * stride + shift <= reach and (o * stride + shift) % dilate == 0 for o in range(outputs)
    )


def backend_config(line: Instruction) -> dict[str, object]:
    """The JSON of an instruction's backend_config, {} where there is none."""
    found = re.search(r"backend_config=(\{.*\})", line.rest)
    return json.loads(found.group(1)) if found else {}
