"""PTX text as a list of instructions. What is not known here is refused."""

import functools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.ptx.arithmetic import TYPES, Rule, Unknown, rule

SPECIAL = ("%tid.x", "%ctaid.x", "%nctaid.x", "%ntid.x", "%laneid", "%warpid")
# Where shared memory begins.
SHARED = 1024
DIRECTIVES = (".pragma", ".reqntid", ".maxn", ".minnctapersm", ".file")
Operand = str | np.ndarray


@dataclass
class Instruction:
    """Names of registers, and constants as arrays of one element.

    ``op`` is "compute", for which ``rule`` holds, or the name of what the machine does.
    """

    op: str
    text: str
    where: str
    results: list[str] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    guard: str = ""
    negated: bool = False
    rule: Rule | None = None
    offset: int = 0
    # of an element of memory
    kind: np.dtype = TYPES["b32"]
    space: str = ""
    target: int = -1
    # memory that a barrier orders
    orders: tuple[str, ...] = ("shared",)

    @functools.cached_property
    def name(self) -> str:
        return self.op.partition(".")[0]

    @functools.cached_property
    def divides(self) -> bool:
        """Whether this is a division of integers."""
        return re.search(r"(^|\s)(div\.[su]|rem\.)", self.text) is not None

    def __str__(self) -> str:
        return f"[{self.where}] {self.text}"


@dataclass
class Program:
    """A kernel. ``registers`` are their dtypes, by names or the letters these begin."""

    name: str
    threads: int
    parameters: list[tuple[str, str]]
    registers: dict[str, np.dtype]
    code: list[Instruction]

    def kind_of(self, register: str) -> np.dtype:
        found = self.registers.get(register)
        if found is None:  # the kind of all registers with such a name
            prefix = re.match(r"%?[a-zA-Z_]+", register)[0]
            found = self.registers[register] = self.registers[prefix]
        return found

    def narrowest(self, space: str) -> int:
        """Bytes of the narrowest access to a space; at most 4."""
        widths = [x.kind.itemsize for x in self.code if x.space == space]
        return min([4, *widths])


def decode(ptx: str, barriers: Collection[str] = ()) -> Program:
    """Read the one kernel of a PTX module, whose own barriers are at some lines."""
    entry = re.search(r"\.entry\s+(\w+)\s*\(([^)]*)\)", ptx)
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", ptx)
    if entry is None or threads is None:
        raise Unknown("a module without a kernel of known size")
    parameters = [x.split() for x in entry[2].split(",") if x.strip()]
    program = Program(
        entry[1],
        int(threads[1]),
        [(words[-1], words[1].lstrip(".")) for words in parameters],
        {"_": TYPES["b64"]},
        [],
    )
    labels: dict[str, int] = {}
    for kind, text, where in _statements(ptx[entry.end() :]):
        if kind == "label":
            labels[text] = len(program.code)
        elif kind == "register":
            words = text.split()
            name = re.match(r"%?[a-zA-Z_]+", words[1])[0]
            program.registers[name] = TYPES[words[0].replace(".f", ".b")[1:]]
        else:
            program.code.append(_instruction(text, where))
    for instruction in program.code:
        if instruction.op == "bra":
            instruction.target = labels[str(instruction.operands.pop())]
        elif ":".join(instruction.where.split(":")[:2]) in barriers:
            instruction.orders = ("shared", "global")
    return program


def own_barriers(ttgir: str) -> set[str]:
    """Where a kernel's own barriers are: in TTGIR the compiler has not added any."""
    places = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ttgir, re.MULTILINE))
    found = set()
    for at in re.findall(r"\b(?:gpu|ttg)\.barrier\b.*loc\((#loc\d*)\)", ttgir):
        place = places[at]
        while inner := re.search(r"#loc\d*", place):
            place = places[inner[0]]
        path, line, _ = place.split(":")
        found.add(f"{Path(path.strip(chr(34))).name}:{line}")
    return found


def _statements(body: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, text and line of source: registers, labels and instructions."""
    where, depth = "?", 0
    for raw in body.splitlines():
        line, _, comment = raw.partition("//")
        line = line.strip()
        if line.startswith(".loc"):
            where = comment.strip() or " ".join(line.split()[1:3])
            continue
        depth += line == "{"
        depth -= line == "}"
        if line == "}" and depth == 0:
            return
        if re.match(r"\{\s*\.reg", line):  # a scope of its own, on one line
            line = line[1:-1]
        for text in (x.strip() for x in line.split(";")):
            while match := re.match(r"([$\w]+):\s*", text):
                yield "label", match[1], where
                text = text[match.end() :]
            if text.startswith(".reg"):
                kind, names = text.split(None, 2)[1:]
                for name in names.split(","):
                    yield "register", f"{kind} {name.strip()}", where
            elif text and text[0] not in ".{}()":
                yield "instruction", text, where
            elif text.startswith(".") and not text.startswith(DIRECTIVES):
                raise Unknown(text)


def _arguments(text: str) -> list[str]:
    """Split at commas that stand in no bracket."""
    return [x.strip() for x in re.split(r",(?![^{\[]*[}\]])", text) if x.strip()]


def _listed(text: str) -> list[str]:
    return [x.strip() for x in text.strip("{} ").split(",")]


def _operand(text: str, kind: np.dtype) -> Operand:
    if match := re.fullmatch(r"0[fF](\w{8})|0[dD](\w{16})", text):
        bits = np.dtype("u4" if match[1] else "u8")
        found = np.array([int(match[1] or match[2], 16)], bits)
        return found if bits.itemsize == kind.itemsize else found.view(kind)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        number = int(text.rstrip("U"), 0)
        if kind == TYPES["pred"]:
            return np.array([number != 0])
        bits = np.dtype(f"u{kind.itemsize}")
        return np.array([number % 2 ** (8 * kind.itemsize)], bits)
    if text == "global_smem":
        return np.array([SHARED], f"u{kind.itemsize}")
    if re.fullmatch(r"%?[a-zA-Z_]+\d*", text) or text in SPECIAL:
        return text
    raise Unknown(f"operand {text}")


def _instruction(text: str, where: str) -> Instruction:
    guard = re.match(r"@(!?)(%p\d+)\s+", text)
    op, *rest = text[guard.end() if guard else 0 :].split(None, 1)
    given = _arguments(rest[0]) if rest else []
    made = Instruction("", text, where)
    if guard:
        made.negated, made.guard = bool(guard[1]), guard[2]
    base, *modifiers = op.split(".")
    if base in {"bra", "ret"}:
        made.op, made.operands = base, list(given)
    elif op in {"bar.sync", "barrier.sync", "barrier.cta.sync"} and given == ["0"]:
        made.op = "barrier"
    elif op == "bar.warp.sync":
        made.op, made.operands = "warp_barrier", [_operand(given[0], TYPES["b32"])]
    elif base in {"ld", "st"} and modifiers[0] == "param":
        made.op, made.rule = "compute", _of_parameter(modifiers[1])
        made.results, made.operands = given[:1], [given[1].strip("[] ")]
    elif base in {"ld", "st", "ldmatrix", "stmatrix"}:
        _memory(made, base, modifiers, given)
    elif base in {"shfl", "redux"} and modifiers[0] == "sync":
        made.op = f"{base}.{modifiers[1]}"
        made.kind = TYPES.get(modifiers[2], TYPES["b32"])
        made.results = [x.strip() for x in given[0].split("|")]
        kinds = [made.kind, *[TYPES["b32"]] * 3]
        made.operands = [_operand(*x) for x in zip(given[1:], kinds, strict=False)]
    elif op == "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64":
        made.op, made.kind, made.results = "mma", TYPES["f64"], _listed(given[0])
        numbers = [y for x in given[1:] for y in _listed(x)]
        made.operands = [_operand(x, made.kind) for x in numbers]
    elif base == "mov" and "{" in text:
        made.op = "unpack" if given[0][0] == "{" else "pack"
        made.kind = TYPES[modifiers[0]]
        half = np.dtype(f"u{made.kind.itemsize // 2}")
        made.results = _listed(given[0])
        inside = made.kind if made.op == "unpack" else half
        made.operands = [_operand(x, inside) for x in _listed(given[1])]
        if max(len(made.results), len(made.operands)) != 2:
            raise Unknown(text)
    else:
        made.op, made.results = "compute", given[:1]
        made.rule = rule(op)
        kinds = made.rule.operands
        made.operands = [_operand(*x) for x in zip(given[1:], kinds, strict=True)]
    return made


def _of_parameter(last: str) -> Rule:
    kind = TYPES[last]
    return Rule((kind,), kind, lambda x: x)


def _memory(
    made: Instruction, base: str, modifiers: list[str], given: list[str]
) -> None:
    """A load or store of ``made.kind``: values, and an address with an offset."""
    names = [m for m in modifiers if m not in {"sync", "aligned", "m8n8"}]
    if base in {"ldmatrix", "stmatrix"}:
        names = [names[1].split("::")[0], names[0].replace("x", "v"), names[2]]
    space, *count, last = (m.split("::")[0] for m in names)
    many = [[], ["v1"], ["v2"], ["v4"]]
    if space not in {"global", "shared"} or count not in many:
        raise Unknown(made.text)
    # of a matrix, each lane has two numbers of 16 bits
    made.kind = TYPES["b32"] if base.endswith("matrix") else TYPES[last]
    made.op, made.space = base, space
    value, place = given if base.startswith("ld") else given[::-1]
    at = re.fullmatch(r"\[\s*([^\s+]+)\s*(?:\+\s*(-?\d+))?\s*\]", place)
    if at is None:
        raise Unknown(made.text)
    made.offset = int(at[2] or 0)
    address = TYPES["b64" if space == "global" else "b32"]
    made.operands = [_operand(at[1], address)]
    if base.startswith("ld"):
        made.results = _listed(value)
    else:
        made.operands += [_operand(x, made.kind) for x in _listed(value)]
