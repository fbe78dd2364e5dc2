"""A case: an instance and a question; its program, its run, and smaller cases."""

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import torch

from tests.fuzz import potentials
from tests.fuzz.structures import KINDS, Arrays, Kind
from tests.fuzz.truth import FORBIDDEN, Row

LAYOUTS = {
    "plain": "{x}",
    "strided": "torch.stack([{x}, torch.full_like({x}, torch.nan)], -1)[..., 0]",
    "transposed": "{x}.movedim(0, -1).contiguous().movedim(-1, 0)",
    "expanded": "{x}[:1].expand({shape})",
    "in place": "torch.zeros_like({x})",
}
CHANGES = ("scale", "select", "augment", "restrict")
HEAD = """\
import torch
from torch import inf

from smoothsp import constraints
from smoothsp.losses import *
from smoothsp.oracles import *
"""


@dataclass(frozen=True)
class Case:
    """Potentials are of float64, rounded to ``dtype``."""

    kind: str
    axes: dict[str, str]
    potentials: Arrays
    arrays: Arrays
    options: dict[str, Any]
    question: str
    seed: int
    # potentials of a second structure, for divergences
    other: Arrays = field(default_factory=dict)
    dtype: str = "float64"
    default: str = "float32"
    layout: str = "plain"
    change: str = ""
    grad: bool = True

    @property
    def structure(self) -> Kind:
        return KINDS[self.kind]

    @property
    def eps(self) -> float:
        return float(np.finfo(self.dtype).eps)

    @property
    def batch(self) -> int:
        return len(next(iter(self.potentials.values())))

    def rounded(self) -> "Case":
        """Return the case with potentials that its structure, dtype and layout have."""

        def one(arrays: Arrays) -> Arrays:
            arrays = self.structure.repair(arrays) if arrays else {}
            rounded = {x: v.astype(self.dtype).astype(float) for x, v in arrays.items()}
            if self.layout == "in place":  # masks are looked for at construction only
                rounded = {
                    x: np.where(v <= FORBIDDEN, -math.inf, v)
                    for x, v in rounded.items()
                }
            if self.layout == "expanded":
                for x, v in rounded.items():
                    if self.axes[x][:1] == "B":
                        rounded[x] = np.broadcast_to(v[:1], v.shape).copy()
            return rounded

        return replace(self, potentials=one(self.potentials), other=one(self.other))

    def rows(self, given: Arrays, arrays: Arrays) -> list[Row]:
        batch = len(next(iter(given.values())))
        options = (self.options,)
        return [Row(self.structure, given, arrays, *options, b) for b in range(batch)]


def draw(
    rng: Random, kind: Kind, questions: list[str], dtypes: tuple[str, ...]
) -> Case:
    axes, drawn, options = kind.draw(rng)
    names = [x for x in axes if x not in kind.others]
    zeros = {x: drawn[x] for x in names}
    question = rng.choice(questions)
    dtype = rng.choice(dtypes)
    change = rng.choice(CHANGES) if rng.random() < 0.25 else ""
    lowest = float(np.finfo(dtype).min)
    found = potentials.forbid(rng, kind, potentials.draw(rng, kind, zeros), lowest)
    other = (
        potentials.draw(rng, kind, zeros) if question in ("kl", "cross_entropy") else {}
    )
    if other and rng.random() < 0.3:
        other = {x: v + found[x] for x, v in other.items()}
    if other or (change == "augment" and "tensor" not in kind.costs):
        change = ""
    return Case(
        kind.name,
        axes,
        found,
        {x: v for x, v in drawn.items() if x not in zeros},
        options,
        question,
        rng.randrange(1000),
        other,
        dtype,
        rng.choice(("float32", "float32", "bfloat16", "float64")),
        rng.choice((*LAYOUTS, "plain", "plain")),
        change,
        rng.random() < 0.8,
    ).rounded()


class Changed:
    """A case's potentials after its change, its line, and gradients before it."""

    def __init__(self, case: Case, rng: Random) -> None:
        self.potentials, self.arrays = dict(case.potentials), case.arrays
        self.lines: list[str] = []
        self.factor, self.rows = 1.0, list(range(case.batch))
        self.case = case
        name = next(iter(self.potentials))
        x = self.potentials[name]
        kind = np.dtype(case.dtype).type
        if case.change == "scale":
            self.factor = rng.choice((0.5, 2.0, 0.3))
            for key, v in self.potentials.items():
                with np.errstate(over="ignore"):
                    scaled = (v.astype(kind) * kind(self.factor)).astype(float)
                self.potentials[key] = np.where(v <= FORBIDDEN, -math.inf, scaled)
            self.lines = [f"structure = structure.scale({self.factor})"]
        elif case.change == "select":
            batch = range(case.batch)
            self.rows = [b for b in batch if rng.random() < 0.6]
            self.rows += [rng.choice(batch)] if batch else []
            self.potentials, self.arrays = (
                {
                    x: v[self.rows] if case.axes[x][:1] == "B" else v
                    for x, v in arrays.items()
                }
                for arrays in (self.potentials, self.arrays)
            )
            chosen = literal(np.array(self.rows, int))
            self.lines = [f"structure = structure.select({chosen})"]
        elif case.change == "augment":
            cost = np.round(potentials.continuous(rng, x.shape), 2).astype(kind)
            kept = np.where(x <= FORBIDDEN, -math.inf, x).astype(kind)
            self.potentials[name] = (kept + cost).astype(float)
            self.lines = [
                f"cost = {literal(cost.astype(float), case.dtype)}",
                "structure = structure.augment(cost)",
            ]
        elif case.change == "restrict":
            allowed = np.array([rng.random() < 0.8 for _ in range(x.size)], bool)
            allowed = allowed.reshape(x.shape)
            self.potentials[name] = np.where(allowed, x, -math.inf)
            self.lines = [f"structure = structure.restrict({literal(allowed)})"]

    def before(self, slope: Arrays) -> Arrays:
        """Turn slopes of the changed potentials to slopes of those before."""
        found = {}
        for x, v in slope.items():
            if self.case.axes[x][:1] == "B":
                found[x] = np.zeros(self.case.potentials[x].shape)
                np.add.at(found[x], self.rows, v * self.factor)
            else:
                found[x] = v * self.factor
        return found


def literal(x: np.ndarray, dtype: str = "") -> str:
    """Return the expression of a tensor; without a dtype, of integers or bool."""
    dtype = dtype or ("bool" if x.dtype == bool else "int64")
    if not x.size:
        return f"torch.zeros({list(x.shape)}, dtype=torch.{dtype})"
    values = x.astype(dtype) if dtype.startswith("float") else x
    return f"torch.tensor({_text(values)}, dtype=torch.{dtype})"


def _text(x: Any) -> str:
    if getattr(x, "ndim", 0):
        return f"[{', '.join(map(_text, x))}]"
    return str(x)


def setting(case: Case) -> list[str]:
    """Lines that build the structure."""
    lines = [f"torch.set_default_dtype(torch.{case.default})"]
    layout = LAYOUTS[case.layout]
    for x, v in case.potentials.items():
        plain = literal(v, case.dtype)
        whole = case.layout == "expanded" and case.axes[x][:1] != "B"
        whole |= case.layout == "plain" or (v.ndim == 0 and case.layout != "strided")
        if whole:
            lines.append(f"{x} = {plain}")
        else:
            lines.append(f"{x}_ = {plain}")
            lines.append(f"{x} = {layout.format(x=f'{x}_', shape=list(v.shape))}")
    for x, v in case.arrays.items():
        lines.append(f"{x} = {literal(v)}")
    if case.grad:
        lines.append(f"for x in ({', '.join(case.potentials)},):")
        lines.append("    x.requires_grad_()")
    given = case.potentials | case.arrays
    lines += case.structure.once(given, case.options)
    lines.append(f"structure = {case.structure.build(given, case.options)}")
    if case.layout == "in place":
        lines.append("with torch.no_grad():")
        lines += [f"    {x}.copy_({x}_)" for x, v in case.potentials.items() if v.ndim]
    if case.other:
        lines += [f"{x} = {literal(v, case.dtype)}" for x, v in case.other.items()]
        # gradients are of the first potentials: the second ones have other names
        names = list(case.potentials)
        kept = "; ".join(f"own_{x} = {x}" for x in names)
        back = "; ".join(f"other_{x} = {x}; {x} = own_{x}" for x in names)
        at = len(lines) - len(names)
        lines.insert(at, kept)
        if case.grad:
            lines += [f"for x in ({', '.join(names)},):", "    x.requires_grad_()"]
        lines.append(f"other = {case.structure.build(given, case.options)}")
        lines.append(back)
    return lines


def run(case: Case, ask: Any) -> tuple[str, str]:
    """Return the kind of mismatch, "" for none, and its program."""
    rng = Random(case.seed)
    changed = Changed(case, rng)
    rows = case.rows(changed.potentials, changed.arrays)
    given = case.rows(case.potentials, case.arrays) if case.change else rows
    feasible = all(row.count for row in (*rows, *given))
    if feasible:
        asked = ask(case, changed, rows, rng)
        if asked is None:
            return "", ""
        asked_lines, check = asked
    else:
        if case.layout == "in place":  # only what is given at first is checked
            return "", ""
        asked_lines, check = ["structure.decode()"], None
    lines = [*setting(case), *changed.lines, *asked_lines]
    names: dict[str, Any] = {"print": lambda *_, **__: None}
    text = HEAD + "\n" + "\n".join(lines) + "\n"
    found = ""
    try:
        with quiet():
            exec(text, names)
        if check is None:
            found = "infeasible: expected a ValueError, got a value"
        else:
            found = next(check(names), "")
    except Exception as error:
        if not (check is None and isinstance(error, ValueError)) and not (
            case.layout == "in place" and refused(error)
        ):
            # the same error has the same beginning, whatever its numbers
            found = f"{type(error).__name__}: {error}"
    finally:
        torch.set_default_dtype(torch.float32)
    return found, text + _comment(found)


def refused(error: Exception) -> bool:
    """Whether potentials were refused that changed after construction.

    Without an error, every question must use what they are now.
    """
    return "in place" in str(error)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """HiGHS and torch say nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def category(found: str) -> str:
    return found.split(":")[0]


def smaller(case: Case) -> Iterator[Case]:
    """Cases that are simpler in one thing, the largest steps first."""
    plain = {"change": "", "layout": "plain", "default": "float32", "dtype": "float64"}
    for name, value in (*plain.items(), ("grad", False)):
        if getattr(case, name) != value:
            yield replace(case, **{name: value})
    letters = {a for x in case.potentials for a in case.axes[x]}
    for letter in case.structure.cut:
        if letter in letters or letter.lower() in letters:
            size = _size(case, letter)
            for i in reversed(range(size)):
                if size > 1 or letter in "BTN":
                    yield _without(case, letter, i)
    for group in ("potentials", "other"):
        arrays = getattr(case, group)
        for x, v in arrays.items():
            for new in (np.zeros_like(v), np.round(v), np.round(v, 1)):
                if not np.array_equal(v, new):
                    yield replace(case, **{group: arrays | {x: new}})
            for at in np.argwhere(v != 0):
                new = v.copy()
                new[tuple(at)] = 0
                yield replace(case, **{group: arrays | {x: new}})


def _size(case: Case, letter: str) -> int:
    for x, v in (case.potentials | case.arrays).items():
        for a, size in zip(case.axes[x], v.shape, strict=True):
            if a == letter:
                return int(size)
            if a == "n" and letter == "N":
                return int(size) - 1
    return 0


def _without(case: Case, letter: str, i: int) -> Case:
    def one(arrays: Arrays) -> Arrays:
        found = {}
        for x, v in arrays.items():
            for axis, a in enumerate(case.axes[x]):
                if a == letter:
                    v = np.delete(v, i, axis)
                elif (a, letter) == ("n", "N"):
                    v = np.delete(v, i + 1, axis)
                elif (a, letter) == ("t", "T") and v.shape[axis]:
                    v = np.delete(v, max(i - 1, 0), axis)
            found[x] = v
        return found

    arrays = one(case.arrays)
    most = {
        "N": ("lengths", "lengths_first"),
        "T": ("lengths",),
        "M": ("lengths_second",),
    }
    for x in most.get(letter, ()):
        if x in arrays:
            arrays[x] = np.minimum(arrays[x], _size(case, letter) - 1)
    return replace(
        case, potentials=one(case.potentials), arrays=arrays, other=one(case.other)
    )


def shrink(case: Case, ask: Any, found: str, most: int = 600) -> tuple[Case, str, str]:
    """Return the smallest case that a greedy search finds, its mismatch and program."""
    program = run(case, ask)[1]
    goes_on = True
    while goes_on and most > 0:
        goes_on = False
        for candidate in smaller(case):
            most -= 1
            try:
                candidate = candidate.rounded()
                again, text = run(candidate, ask)
            except Exception:  # not an instance of the structure
                continue
            if again and category(again) == category(found):
                case, found, program, goes_on = candidate, again, text, True
                break
            if most <= 0:
                break
    return case, found, program
