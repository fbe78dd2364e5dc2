"""How to draw, build and enumerate each structure, written from its documentation.

Axes of arrays are letters: B rows, T positions, S states and so on. A small letter
counts one less (``t``) for steps between positions, one more (``n``) for words and the
root.
"""

import itertools
import math
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

# A potential that an output uses: name, place and, if not 1, its coefficient.
Part = tuple[Any, ...]
Arrays = dict[str, np.ndarray]
Output = tuple[np.ndarray, list[Part]]


class Kind:
    """A structure: by default its cost counts the entries that differ."""

    # Axes of potentials; the cost is added to the first.
    potentials: dict[str, str]
    # Axes of what else may be cut to a smaller size.
    others: dict[str, str] = {}
    # Letters of the sizes, and the largest drawn.
    sizes: dict[str, int]
    # Letters along which a smaller instance is an instance.
    cut = "B"
    sums = topk = parts = True
    # Costs of losses: parts may have any, or only that of Hamming, or none.
    costs: tuple[str, ...] = ("none", "hamming", "tensor")
    # Potentials that are always finite.
    finite: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return type(self).__name__

    def draw(self, rng: Random) -> tuple[dict[str, str], Arrays, dict[str, Any]]:
        """Return axes and shapes of potentials (as zeros), other arrays and options."""
        sizes = {x: rng.randint(x not in "TNM", most) for x, most in self.sizes.items()}
        sizes["B"] = rng.choice((0, 1, 1, 2, 3))
        sizes |= {"t": max(sizes.get("T", 0) - 1, 0), "n": sizes.get("N", 0) + 1}
        self.adapt(rng, sizes)
        axes = dict(self.choose(rng))
        arrays, options = self.options(rng, sizes)
        axes |= {x: self.others[x] for x in arrays}
        zeros = {
            x: np.zeros([sizes[a] for a in axes[x]]) for x in axes if x not in arrays
        }
        return axes, zeros | arrays, options

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        pass

    def choose(self, rng: Random) -> dict[str, str]:
        return self.potentials

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        return {}, {}

    def build(self, arrays: Arrays, options: dict[str, Any]) -> str:
        """Return the expression that builds the structure of arrays by their names."""
        given = [f"{x}={x}" for x in arrays] + [f"{x}={options[x]!r}" for x in options]
        return f"{self.name}({', '.join(given)})"

    def once(self, arrays: Arrays, options: dict[str, Any]) -> list[str]:
        """Return lines of what structures of these options share."""
        return []

    def repair(self, arrays: Arrays) -> Arrays:
        """Return potentials that the structure allows."""
        return arrays

    def outputs(
        self, arrays: Arrays, options: dict[str, Any], b: int
    ) -> Iterator[Output]:
        raise NotImplementedError

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        """Return the Hamming cost of ``other`` where y is right."""
        return float((other != y).sum())


def some_lengths(rng: Random, n: dict[str, int], most: int) -> np.ndarray:
    return np.array([rng.randint(0, most) for _ in range(n["B"])], int)


def integers(rng: Random, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    drawn = [rng.randint(low, high) for _ in range(math.prod(shape))]
    return np.array(drawn, int).reshape(shape)


def first(arrays: Arrays, b: int, most: int, name: str = "lengths") -> range:
    return range(int(arrays[name][b]) if name in arrays else most)


class Sequence(Kind):
    """Structures over the real positions of a row, with a mask or lengths."""

    others = {"mask": "BT", "lengths": "B"}
    cut = "BTS"

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        way = rng.choice(("", "mask", "lengths"))
        if way == "mask":
            return {"mask": integers(rng, (n["B"], n["T"]), 0, 3) > 0}, {}
        return ({way: some_lengths(rng, n, n["T"])} if way else {}), {}

    def real(self, arrays: Arrays, b: int) -> list[int]:
        steps = next(iter(arrays.values())).shape[1]
        if "mask" in arrays:
            return [t for t in range(steps) if arrays["mask"][b, t]]
        return list(first(arrays, b, steps))

    def labellings(self, arrays: Arrays, b: int) -> Iterator[tuple[np.ndarray, Any]]:
        """All labels, and pairs of position and label."""
        at = self.real(arrays, b)
        _, steps, states = arrays["emissions"].shape
        for labels in itertools.product(range(states), repeat=len(at)):
            y = np.full(steps, -1)
            y[at] = labels
            yield y, list(zip(at, labels, strict=True))


class Chain(Sequence):
    potentials = {
        "emissions": "BTS",
        "transitions": "SS",
        "start": "S",
        "end": "S",
    }
    sizes = {"T": 5, "S": 4}
    edges = True

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        if sizes["S"] == 4:
            sizes["T"] = min(sizes["T"], 4)
            sizes["t"] = max(sizes["T"] - 1, 0)

    def choose(self, rng: Random) -> dict[str, str]:
        axes = dict(self.potentials)
        for name in ("start", "end"):
            if rng.random() < 0.5:
                del axes[name]
        if rng.random() < 0.4:
            axes["transitions"] = "BtSS"
        return axes

    def outputs(self, arrays, options, b):
        shared = arrays["transitions"].ndim == 2
        for y, chosen in self.labellings(arrays, b):
            parts: list[Part] = [("emissions", b, t, s) for t, s in chosen]
            for (_, i), (t, j) in itertools.pairwise(chosen):
                place = (i, j) if shared else (b, t - 1, i, j)
                parts.append(("transitions", *place))
            for name, end in (("start", 0), ("end", -1)):
                if name in arrays and chosen:
                    parts.append((name, chosen[end][1]))
            yield y, parts


class RegularChain(Chain):
    edges = False
    cut = "BT"

    def choose(self, rng: Random) -> dict[str, str]:
        return super().choose(rng) | {"transitions": "SS"}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        arrays, _ = super().options(rng, n)
        labels = "abcd"[: n["S"]]
        a, b, c = (rng.choice(labels) for _ in range(3))
        patterns = (".*", f"({a} {b}?)*", f".* {a} .*", f"{a}* {b} ({c} | {a})*")
        pattern = rng.choice((*patterns, f"({a} | {b} {c}){{0,2}} .?"))
        return arrays, {"labels": list(labels), "pattern": pattern}

    def build(self, arrays: Arrays, options: dict[str, Any]) -> str:
        return f"language({', '.join(f'{x}={x}' for x in arrays)})"

    def once(self, arrays: Arrays, options: dict[str, Any]) -> list[str]:
        given = f"{options['labels']!r}, {options['pattern']!r}"
        return [f"language = constraints.regular({given})"]

    def outputs(self, arrays, options, b):
        pattern = re.compile(options["pattern"].replace(" ", ""))
        for y, parts in super().outputs(arrays, options, b):
            word = "".join(options["labels"][i] for i in y if i >= 0)
            if pattern.fullmatch(word):
                yield y, parts


class SecondOrderChain(Sequence):
    potentials = {"emissions": "BTS", "transitions": "SSS"}
    sizes = {"T": 4, "S": 3}

    def outputs(self, arrays, options, b):
        for y, chosen in self.labellings(arrays, b):
            states = [s for _, s in chosen]
            parts: list[Part] = [("emissions", b, *x) for x in chosen]
            three = zip(states, states[1:], states[2:], strict=False)
            yield y, parts + [("transitions", *x) for x in three]


class SemiMarkov(Sequence):
    potentials = {
        "segments": "BTDS",
        "transitions": "SS",
        "start": "S",
        "end": "S",
    }
    sizes = {"T": 4, "D": 3, "S": 2}

    def choose(self, rng: Random) -> dict[str, str]:
        axes = dict(self.potentials)
        for name in ("start", "end", "transitions"):
            if rng.random() < 0.4:
                del axes[name]
        if "transitions" in axes and rng.random() < 0.4:
            axes["transitions"] = "BTSS"
        return axes

    def outputs(self, arrays, options, b):
        at = self.real(arrays, b)
        _, steps, longest, states = arrays["segments"].shape
        shared = "transitions" in arrays and arrays["transitions"].ndim == 2

        def cuts(begin: int) -> Iterator[list[tuple[int, int, int]]]:
            if begin == len(at):
                yield []
            for d in range(min(longest, len(at) - begin)):
                for rest in cuts(begin + d + 1):
                    for s in range(states):
                        yield [(at[begin], d, s), *rest]

        for segments in cuts(0):
            y = np.full(steps, -1)
            parts: list[Part] = [("segments", b, *x) for x in segments]
            for t, _, s in segments:
                y[t] = s
            for (_, _, i), (t, _, j) in itertools.pairwise(segments):
                if "transitions" in arrays:
                    place = (i, j) if shared else (b, t, i, j)
                    parts.append(("transitions", *place))
            for name, end in (("start", 0), ("end", -1)):
                if name in arrays and segments:
                    parts.append((name, segments[end][2]))
            yield y, parts

    # the cost of Hamming is of tags, which need the mask
    costs = ("none", "tensor")


class Multiclass(Kind):
    potentials = {"scores": "BM"}
    others = {"mask": "BM"}
    sizes = {"M": 6}
    cut = "BM"

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        sizes["M"] = max(1, sizes["M"])

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        if rng.random() < 0.5:
            return {}, {}
        return {"mask": integers(rng, (n["B"], n["M"]), 0, 3) > 0}, {}

    def outputs(self, arrays, options, b):
        candidates = range(arrays["scores"].shape[1])
        real = [i for i in candidates if "mask" not in arrays or arrays["mask"][b, i]]
        for i in real:
            yield np.array(i), [("scores", b, i)]
        if not real:
            yield np.array(-1), []


class Tree(Kind):
    potentials = {"nodes": "BVS", "edges": "VSS"}
    others = {"parents": "V", "lengths": "B"}
    sizes = {"V": 4, "S": 3}
    cut = "BS"

    def choose(self, rng: Random) -> dict[str, str]:
        return {"nodes": "BVS", "edges": rng.choice(("VSS", "BVSS"))}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        parents = np.array([rng.randint(-1, v - 1) for v in range(n["V"])], int)
        if rng.random() < 0.5:
            return {"parents": parents, "lengths": some_lengths(rng, n, n["V"])}, {}
        order = rng.sample(range(n["V"]), n["V"])
        moved = np.full(n["V"], -1)
        for v, p in enumerate(parents):
            moved[order[v]] = order[p] if p >= 0 else -1
        return {"parents": moved}, {}

    def outputs(self, arrays, options, b):
        _, V, S = arrays["nodes"].shape
        real = first(arrays, b, V)
        row = (b,) if arrays["edges"].ndim == 4 else ()
        for states in itertools.product(range(S), repeat=len(real)):
            y = np.full(V, -1)
            y[: len(real)] = states
            parts: list[Part] = [("nodes", b, v, y[v]) for v in real]
            for v in real:
                p = arrays["parents"][v]
                if p >= 0:
                    parts.append(("edges", *row, v, y[p], y[v]))
            yield y, parts


class LoopyGraph(Kind):
    potentials = {"nodes": "BVS", "edges": "BESS"}
    others = {"index": "EI"}
    sizes = {"V": 4, "S": 3, "E": 5}
    cut = "BSE"
    states = 3

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        n["I"] = 2
        pairs = [rng.sample(range(n["V"]), 2) for _ in range(n["E"])]
        return {"index": np.array(pairs, int).reshape(-1, 2)}, {}

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        sizes["V"] = max(2, sizes["V"])

    def outputs(self, arrays, options, b):
        _, V, S = arrays["nodes"].shape
        for y in itertools.product(range(S), repeat=V):
            parts: list[Part] = [("nodes", b, v, s) for v, s in enumerate(y)]
            for e, (i, j) in enumerate(arrays["index"]):
                parts.append(("edges", b, e, y[i], y[j]))
            yield np.array(y), parts


class BinaryGraph(LoopyGraph):
    sizes = {"V": 5, "E": 6}
    cut = "BE"
    sums = False

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        super().adapt(rng, sizes)
        sizes["S"] = 2

    finite = ("edges",)

    def repair(self, arrays: Arrays) -> Arrays:
        e = arrays["edges"].copy()
        high = np.maximum(e[..., 0, 1], e[..., 1, 0])
        e[..., 0, 0] = np.maximum(e[..., 0, 0], high)
        e[..., 1, 1] = np.maximum(e[..., 1, 1], high)
        return arrays | {"edges": e}


class Models(Kind):
    potentials = {"scores": "BVS"}
    sizes = {"V": 4}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        clauses = []
        for _ in range(rng.randint(0, 3)):
            chosen = rng.sample(range(1, n["V"] + 1), rng.randint(1, n["V"]))
            clauses.append([v * rng.choice((-1, 1)) for v in chosen])
        holds = (
            all(any((x[abs(v) - 1] > 0) == (v > 0) for v in c) for c in clauses)
            for x in itertools.product((0, 1), repeat=n["V"])
        )
        return {}, {"clauses": clauses if any(holds) else []}

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        sizes["S"] = 2

    def build(self, arrays: Arrays, options: dict[str, Any]) -> str:
        return "formula(scores)"

    def once(self, arrays: Arrays, options: dict[str, Any]) -> list[str]:
        V = arrays["scores"].shape[1]
        return [f"formula = Formula.from_clauses({options['clauses']!r}, {V})"]

    def outputs(self, arrays, options, b):
        for y in itertools.product((0, 1), repeat=arrays["scores"].shape[1]):
            met = [
                [(y[abs(v) - 1] > 0) == (v > 0) for v in c] for c in options["clauses"]
            ]
            if all(map(any, met)):
                yield np.array(y), [("scores", b, v, x) for v, x in enumerate(y)]


class Chosen(Kind):
    """Outputs of 0 and 1: the cost counts the chosen that y lacks."""

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        return float(((other == 1) & (y != 1)).sum())


class Subset(Chosen):
    potentials = {"scores": "BN"}
    others = {"lengths": "B"}
    sizes = {"N": 6}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        low = rng.randint(0, n["N"])
        given = {"at_least": low, "at_most": rng.randint(low, n["N"] + 1)}
        if rng.random() < 0.5:
            lengths = [rng.randint(low, n["N"]) for _ in range(n["B"])]
            return {"lengths": np.array(lengths, int)}, given
        return {}, given

    def allows(self, arrays, options, y) -> bool:
        return bool(options["at_least"] <= y.sum() <= options["at_most"])

    def outputs(self, arrays, options, b):
        N = arrays["scores"].shape[1]
        real = first(arrays, b, N)
        for bits in itertools.product((0, 1), repeat=len(real)):
            if self.allows(arrays, options, np.array(bits, int)):
                y = np.full(N, -1)
                y[: len(real)] = bits
                yield y, [("scores", b, i) for i in real if bits[i]]


class Knapsack(Subset):
    others = {"weights": "N", "lengths": "B"}
    cut = "BN"

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        arrays = {"weights": integers(rng, (n["N"],), 0, 4)}
        if rng.random() < 0.5:
            arrays["lengths"] = some_lengths(rng, n, n["N"])
        return arrays, {"capacity": rng.randint(0, 8)}

    def allows(self, arrays, options, y) -> bool:
        return bool(y @ arrays["weights"][: len(y)] <= options["capacity"])


class IntegerProgram(Subset):
    others = {"A": "MN", "low": "M", "high": "M"}
    cut = "BN"
    sums = topk = parts = False

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        n["M"] = rng.randint(0, 2)
        n["N"] = max(1, n["N"])
        A = integers(rng, (n["M"], n["N"]), -2, 3)
        low = integers(rng, (n["M"],), -4, 0)
        return {"A": A, "low": low, "high": low + integers(rng, (n["M"],), 3, 6)}, {}

    def build(self, arrays: Arrays, options: dict[str, Any]) -> str:
        return "IntegerProgram(scores, (A.double(), low.double(), high.double()))"

    def allows(self, arrays, options, y) -> bool:
        total = arrays["A"] @ y
        return bool(((arrays["low"] <= total) & (total <= arrays["high"])).all())


class CTC(Kind):
    potentials = {"log_probs": "BTC"}
    others = {"targets": "BL", "lengths": "B", "target_lengths": "B"}
    sizes = {"T": 4, "C": 3, "L": 2}
    cut = "B"

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        n["C"] = max(2, n["C"])
        blank = rng.randrange(n["C"])
        labels = [c for c in range(n["C"]) if c != blank]
        targets = [rng.choice(labels) for _ in range(n["B"] * n["L"])]
        arrays = {"targets": np.array(targets, int).reshape(n["B"], n["L"])}
        if rng.random() < 0.5:
            arrays["lengths"] = some_lengths(rng, n, n["T"])
            arrays["target_lengths"] = some_lengths(rng, n, n["L"])
        return arrays, {"blank": blank}

    def outputs(self, arrays, options, b):
        _, T, C = arrays["log_probs"].shape
        frames = first(arrays, b, T)
        L = first(arrays, b, arrays["targets"].shape[1], "target_lengths")
        target = [int(x) for x in arrays["targets"][b, : len(L)]]
        for path in itertools.product(range(C), repeat=len(frames)):
            merged = [c for c, _ in itertools.groupby(path) if c != options["blank"]]
            if merged == target:
                y = np.full(T, -1)
                y[: len(path)] = path
                yield y, [("log_probs", b, t, c) for t, c in enumerate(path)]


class ProjectiveDependencies(Kind):
    potentials = {"arcs": "Bnn"}
    others = {"lengths": "B"}
    sizes = {"N": 4, "L": 2}
    cut = "BN"
    crossing = False

    def choose(self, rng: Random) -> dict[str, str]:
        return {"arcs": rng.choice(("Bnn", "BnnL"))}

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        if self.crossing or sizes["L"] == 2:
            sizes["N"] = min(sizes["N"], 3)
        sizes["n"] = sizes["N"] + 1

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        arrays = {"lengths": some_lengths(rng, n, n["N"])} if rng.random() < 0.5 else {}
        return arrays, {"single_root": rng.random() < 0.5}

    def outputs(self, arrays, options, b):
        n = arrays["arcs"].shape[1] - 1
        labels = arrays["arcs"].shape[3] if arrays["arcs"].ndim == 4 else 0
        words = first(arrays, b, n)
        for heads in itertools.product(range(len(words) + 1), repeat=len(words)):
            if not self.is_tree(heads):
                continue
            if options["single_root"] and heads and heads.count(0) != 1:
                continue
            arcs = [(b, h, m + 1) for m, h in enumerate(heads)]
            if not labels:
                y = np.full(n, -1)
                y[: len(words)] = heads
                yield y, [("arcs", *arc) for arc in arcs] + self.pairs(b, heads)
                continue
            for given in itertools.product(range(labels), repeat=len(words)):
                y = np.full((n, 2), -1)
                y[: len(words)] = np.array([heads, given]).T
                yield y, [("arcs", *x, k) for x, k in zip(arcs, given, strict=True)]

    def is_tree(self, heads: tuple[int, ...]) -> bool:
        for m in range(1, len(heads) + 1):
            seen, at = set(), m
            while at and at not in seen:
                seen.add(at)
                at = heads[at - 1]
            if at:
                return False
        spans = [sorted((h, m + 1)) for m, h in enumerate(heads)]
        pairs = itertools.permutations(spans, 2)
        return self.crossing or not any(a < c < b < d for (a, b), (c, d) in pairs)

    def pairs(self, b: int, heads: tuple[int, ...]) -> list[Part]:
        return []

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        wrong = other != y
        return float((wrong.any(-1) if y.ndim == 2 else wrong).sum())


class SiblingDependencies(ProjectiveDependencies):
    potentials = {"arcs": "Bnn", "siblings": "Bnnn"}

    def choose(self, rng: Random) -> dict[str, str]:
        return self.potentials

    def pairs(self, b: int, heads: tuple[int, ...]) -> list[Part]:
        found: list[Part] = []
        for h in range(len(heads) + 1):
            own = [m + 1 for m, head in enumerate(heads) if head == h]
            right = [m for m in own if m > h]
            left = [m for m in reversed(own) if m < h]
            for side in (left, right):
                found += [("siblings", b, h, *x) for x in itertools.pairwise(side)]
        return found


class SpanningTree(ProjectiveDependencies):
    crossing = True


class SpanTree(Kind):
    potentials = {"spans": "BNN"}
    others = {"lengths": "B"}
    sizes = {"N": 4, "S": 2}
    cut = "BN"

    def choose(self, rng: Random) -> dict[str, str]:
        return {"spans": rng.choice(("BNN", "BNNS"))}

    def adapt(self, rng: Random, sizes: dict[str, int]) -> None:
        sizes["N"] = min(sizes["N"], 4 if sizes["S"] == 1 else 3)

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        if rng.random() < 0.5:
            return {}, {}
        return {"lengths": some_lengths(rng, n, n["N"])}, {}

    def outputs(self, arrays, options, b):
        spans = arrays["spans"]
        states = spans.shape[-1] if spans.ndim == 4 else 1
        n = spans.shape[1]

        def trees(i: int, j: int) -> Iterator[list[tuple[int, int]]]:
            if i == j:
                yield [(i, j)]
            for k in range(i, j):
                for left, right in itertools.product(trees(i, k), trees(k + 1, j)):
                    yield [(i, j), *left, *right]

        words = len(first(arrays, b, n))
        for tree in trees(0, words - 1) if words else [[]]:
            for labels in itertools.product(range(states), repeat=len(tree)):
                y = np.full((n, n), -1)
                for place, s in zip(tree, labels, strict=True):
                    y[place] = s
                end = [(s,) if spans.ndim == 4 else () for s in labels]
                placed = zip(tree, end, strict=True)
                yield y, [("spans", b, *x, *s) for x, s in placed]

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        return float(((other != y) & (other >= 0)).sum())


class Grammar(SpanTree):
    potentials = {"spans": "BNNS", "rules": "SSS", "top": "S"}
    sizes = {"N": 3, "S": 2}
    cut = "BN"

    def choose(self, rng: Random) -> dict[str, str]:
        axes = {
            "spans": rng.choice(("BNS", "BNNS")),
            "rules": rng.choice(("SSS", "BSSS")),
        }
        return axes | ({"top": "S"} if rng.random() < 0.5 else {})

    def outputs(self, arrays, options, b):
        every = arrays["spans"].ndim == 4
        shape = arrays["spans"].shape
        full = {"spans": np.zeros((shape[0], shape[1], shape[1], shape[-1]))}
        row = (b,) if arrays["rules"].ndim == 4 else ()
        for y, spans in super().outputs(arrays | full, options, b):
            parts: list[Part] = []
            for _, _, i, j, s in spans:
                if every:
                    parts.append(("spans", b, i, j, s))
                elif i == j:
                    parts.append(("spans", b, i, s))
                # the split of a span is after its longest proper prefix that is one
                ends = [k for k in range(i, j) if y[i, k] >= 0 and y[k + 1, j] >= 0]
                for k in ends:
                    parts.append(("rules", *row, s, y[i, k], y[k + 1, j]))
            if "top" in arrays and spans:
                parts.append(("top", spans[0][-1]))
            yield y, parts


class Alignment(Kind):
    potentials = {
        "match": "BNM",
        "gap_first": "BN",
        "gap_second": "BM",
        "gap_open": "B",
        "gap_extend": "B",
    }
    others = {"lengths_first": "B", "lengths_second": "B"}
    sizes = {"N": 3, "M": 3}
    cut = "BNM"
    steps = ((1, 1), (1, 0), (0, 1))

    def choose(self, rng: Random) -> dict[str, str]:
        some = [x for x in self.potentials if x == "match" or rng.random() < 0.5]
        return {x: self.potentials[x] for x in some}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        if rng.random() < 0.5:
            return {}, {}
        lengths = {"lengths_first": some_lengths(rng, n, n["N"])}
        return lengths | {"lengths_second": some_lengths(rng, n, n["M"])}, {}

    def paths(
        self, i: int, j: int, N: int, M: int
    ) -> Iterator[list[tuple[int, int, int]]]:
        """Moves from (i, j) to (N, M)."""
        if (i, j) == (N, M):
            yield []
        for move, (di, dj) in enumerate(self.steps):
            if i + di <= N and j + dj <= M:
                for rest in self.paths(i + di, j + dj, N, M):
                    yield [(i, j, move), *rest]

    def real(self, arrays: Arrays, b: int) -> tuple[int, int]:
        _, N, M = arrays["match"].shape
        own = first(arrays, b, N, "lengths_first")
        return len(own), len(first(arrays, b, M, "lengths_second"))

    def outputs(self, arrays, options, b):
        _, N, M = arrays["match"].shape
        for path in self.paths(0, 0, *self.real(arrays, b)):
            y = np.full((N + 1, M + 1), -1)
            parts: list[Part] = []
            before = 0
            for i, j, move in path:
                y[i, j] = move
                named = (("match", b, i, j), ("gap_first", b, i), ("gap_second", b, j))
                parts.append(named[move])
                if move:
                    goes_on = move == before
                    parts.append(("gap_extend" if goes_on else "gap_open", b))
                before = move
            yield y, [x for x in parts if x[0] in arrays]

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        return float(((other == 0) & (y != 0)).sum())


class Warping(Alignment):
    potentials = {"match": "BNM"}

    def outputs(self, arrays, options, b):
        _, N, M = arrays["match"].shape
        n, m = self.real(arrays, b)
        if n == m == 0:
            yield np.full((N, M), -1), []
        elif n and m:
            for path in self.paths(0, 0, n - 1, m - 1):
                pairs = [(i, j) for i, j, _ in path] + [(n - 1, m - 1)]
                y = np.full((N, M), -1)
                y[tuple(np.array(pairs).T)] = 0
                yield y, [("match", b, *x) for x in pairs]


class Lattice(Chosen):
    potentials = {"arcs": "BE"}
    others = {"index": "EI"}
    sizes = {"E": 6}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        n["I"] = 2
        nodes = rng.randint(2, min(n["E"], 4) + 1)
        pairs = [(v, v + 1) for v in range(nodes - 1)]
        while len(pairs) < n["E"]:
            pairs.append(tuple(sorted(rng.sample(range(nodes), 2))))
        rng.shuffle(pairs)
        return {"index": np.array(pairs, int)}, {}

    def ends(self, arrays: Arrays, options: dict[str, Any]) -> tuple[int, int]:
        return 0, int(arrays["index"].max())

    def outputs(self, arrays, options, b):
        E = arrays["arcs"].shape[1]
        source, sink = self.ends(arrays, options)

        def paths(at: int, seen: tuple[int, ...]) -> Iterator[list[int]]:
            if at == sink:
                yield []
                return
            for e, (i, j) in enumerate(arrays["index"]):
                if i == at and j not in seen:
                    for rest in paths(int(j), (*seen, int(j))):
                        yield [e, *rest]

        for path in paths(source, (source,)):
            y = np.zeros(E, int)
            y[path] = 1
            yield y, [("arcs", b, e) for e in path]


class ShortestPath(Lattice):
    sums = parts = False

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        arrays, _ = super().options(rng, n)
        last = int(arrays["index"].max())
        turn = [rng.random() < 0.3 for _ in arrays["index"]]
        turned = [
            p[::-1] if t else p for p, t in zip(arrays["index"], turn, strict=True)
        ]
        return {"index": np.array(turned, int)}, {"source": 0, "target": last}

    def ends(self, arrays: Arrays, options: dict[str, Any]) -> tuple[int, int]:
        return options["source"], options["target"]

    # a cost could make a cycle positive
    costs = ("none",)

    def repair(self, arrays: Arrays) -> Arrays:
        return arrays | {"arcs": np.minimum(arrays["arcs"], -arrays["arcs"])}


class UndirectedSpanningTree(Chosen):
    potentials = {"edges": "BE"}
    others = {"index": "EI"}
    sizes = {"E": 6}

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        n["I"] = 2
        nodes = rng.randint(2, min(n["E"], 4) + 1)
        pairs = [(rng.randint(0, v), v + 1) for v in range(nodes - 1)]
        while len(pairs) < n["E"]:
            pairs.append(tuple(rng.sample(range(nodes), 2)))
        return {"index": np.array(pairs, int)}, {}

    def outputs(self, arrays, options, b):
        index = arrays["index"].tolist()
        nodes = max(map(max, index)) + 1
        for chosen in itertools.combinations(range(len(index)), nodes - 1):
            joined = list(range(nodes))
            for e in chosen:
                i, j = (joined[v] for v in index[e])
                joined = [i if x == j else x for x in joined]
            if len(set(joined)) == 1:
                y = np.zeros(len(index), int)
                y[list(chosen)] = 1
                yield y, [("edges", b, e) for e in chosen]


class Matching(Kind):
    potentials = {"scores": "BPQ"}
    sizes = {"P": 4, "Q": 4}
    cut = "BPQ"
    sums = False

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        return {}, {"partial": rng.random() < 0.4}

    def outputs(self, arrays, options, b):
        _, P, Q = arrays["scores"].shape
        partial = options["partial"]
        Q -= partial
        for y in itertools.product(range(-1, Q), repeat=P):
            used = [q for q in y if q >= 0]
            if len(set(used)) < len(used) or (not partial and len(used) < min(P, Q)):
                continue
            parts: list[Part] = [("scores", b, p, q) for p, q in enumerate(y) if q >= 0]
            if partial:
                parts += [("scores", b, p, Q) for p, q in enumerate(y) if q < 0]
            yield np.array(y), parts


class BoxSearch(Kind):
    potentials = {"cells": "BHW"}
    sizes = {"H": 4, "W": 4}
    cut = "BHW"
    sums = parts = False
    costs = ("none", "hamming")

    def outputs(self, arrays, options, b):
        _, H, W = arrays["cells"].shape
        rows = itertools.combinations_with_replacement(range(H), 2)
        columns = list(itertools.combinations_with_replacement(range(W), 2))
        for (top, bottom), (left, right) in itertools.product(rows, columns):
            cells = itertools.product(range(top, bottom + 1), range(left, right + 1))
            y = np.array([top, left, bottom, right])
            yield y, [("cells", b, *x) for x in cells]

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        def area(low: np.ndarray, high: np.ndarray) -> float:
            return float(np.maximum(high - low + 1, 0).prod())

        both = area(np.maximum(other[:2], y[:2]), np.minimum(other[2:], y[2:]))
        return 1 - both / (area(other[:2], other[2:]) + area(y[:2], y[2:]) - both)


class PictorialStructure(Kind):
    potentials = {"parts": "BPHW", "deformation": "PF"}
    others = {"parents": "P", "anchors": "PI"}
    sizes = {"P": 3, "H": 2, "W": 3}
    finite = ("deformation",)
    sums = False

    def options(self, rng: Random, n: dict[str, int]) -> tuple[Arrays, dict[str, Any]]:
        n |= {"F": 4, "I": 2}
        if n["P"] == 3:
            n["W"] = min(n["W"], 2)
        parents = np.array([rng.randint(-1, p - 1) for p in range(n["P"])], int)
        if rng.random() < 0.5:
            return {"parents": parents}, {}
        return {"parents": parents, "anchors": integers(rng, (n["P"], 2), -1, 1)}, {}

    def build(self, arrays: Arrays, options: dict[str, Any]) -> str:
        anchors = ", anchors.to(parts.dtype)" if "anchors" in arrays else ""
        return f"PictorialStructure(parts, deformation, parents{anchors})"

    def repair(self, arrays: Arrays) -> Arrays:
        d = arrays["deformation"].copy()
        d[:, 1::2] = np.abs(d[:, 1::2])
        return arrays | {"deformation": d}

    def outputs(self, arrays, options, b):
        _, P, H, W = arrays["parts"].shape
        cells = list(itertools.product(range(H), range(W)))
        for y in itertools.product(cells, repeat=P):
            parts: list[Part] = [("parts", b, p, *x) for p, x in enumerate(y)]
            for p, q in enumerate(arrays["parents"]):
                if q >= 0:
                    move = np.subtract(y[p], y[q])
                    if "anchors" in arrays:
                        move = move - arrays["anchors"][p]
                    for k, (i, power) in enumerate(((0, 1), (0, 2), (1, 1), (1, 2))):
                        weight = (
                            -(float(move[i]) ** power)
                            if power == 1
                            else -float(move[i] ** 2)
                        )
                        parts.append(("deformation", p, k, weight))
            yield np.array(y), parts

    def cost(self, other: np.ndarray, y: np.ndarray) -> float:
        return float((other != y).any(-1).sum())


KINDS = {
    kind.__name__: kind()
    for kind in (
        Chain,
        Multiclass,
        SemiMarkov,
        SecondOrderChain,
        RegularChain,
        ProjectiveDependencies,
        SiblingDependencies,
        SpanTree,
        Grammar,
        Tree,
        LoopyGraph,
        Models,
        Subset,
        Knapsack,
        CTC,
        Alignment,
        Warping,
        Lattice,
        SpanningTree,
        UndirectedSpanningTree,
        Matching,
        BinaryGraph,
        BoxSearch,
        ShortestPath,
        PictorialStructure,
        IntegerProgram,
    )
}
