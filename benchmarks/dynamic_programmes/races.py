"""What is raced: a structure of smoothsp, a peer's, and how their answers compare.

Every contender is a call that returns a value of each row and gradients, or values
alone. Inputs are drawn once, in float64, and given to all in float32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dynamic_programmes import peers
from smoothsp import oracles

Answer = tuple[Tensor, ...]
Call = Callable[[], Answer]
ROWS = 32


@dataclass(frozen=True)
class Race:
    """A question to one structure.

    Attributes
    ----------
    name
        Structure, size and question.
    target
        How many times as fast as the fastest peer it is meant to be.
    ours
        ``ours(dtype)``: the call to make; likewise each of ``peers``, by name.
    comparable
        Whether a peer's first answer is the same number; it is compared then.
    """

    name: str
    target: float
    ours: Callable[[torch.dtype], Call]
    peers: dict[str, Callable[[torch.dtype], Call]]
    comparable: bool = True
    tolerance: float = 1e-4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal scores in float64, the same at each call."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def with_gradients(ask: Callable[..., Tensor], *potentials: Tensor) -> Call:
    """A call that gives values and all gradients, through autograd."""
    leaves = [x.clone().requires_grad_() for x in potentials]

    def call() -> Answer:
        value = ask(*leaves)
        return value, *torch.autograd.grad(value.sum(), leaves)

    return call


def values(ask: Callable[[], Tensor]) -> Call:
    """A call that gives values alone."""

    def call() -> Answer:
        with torch.no_grad():
            return (ask(),)

    return call


def arcs(n: int) -> Tensor:
    return drawn(ROWS, n + 1, n + 1)


def dependencies(n: int, target: float) -> Race:
    """Projective trees of n words, any number of which depend on the root."""

    def ours(dtype: torch.dtype) -> Call:
        def ask(x: Tensor) -> Tensor:
            return oracles.ProjectiveDependencies(x).log_partition()

        return with_gradients(ask, arcs(n).to(dtype))

    return Race(
        f"dependencies, {n} words: log-partition and gradients",
        target,
        ours,
        {
            "torch-struct": lambda dtype: with_gradients(
                peers.struct_dependencies, peers.root_on_diagonal(arcs(n)).to(dtype)
            )
        },
    )


def best_dependencies(n: int, k: int, target: float) -> Race:
    """The k best of them."""

    def ours(dtype: torch.dtype) -> Call:
        x = arcs(n).to(dtype)
        if k == 1:
            return values(lambda: oracles.ProjectiveDependencies(x).decode()[0])
        return values(lambda: oracles.ProjectiveDependencies(x).decode_topk(k)[0].T)

    def theirs(dtype: torch.dtype) -> Call:
        x = peers.root_on_diagonal(arcs(n)).to(dtype)
        # it differentiates a maximum to find where it is
        return lambda: (peers.struct_best_dependencies(x, k).detach(),)

    words = "decode" if k == 1 else f"top {k}"
    name = f"dependencies, {n} words: {words}"
    return Race(name, target, ours, {"torch-struct": theirs})


def spans(n: int, target: float) -> Race:
    """Binary trees over n words by the scores of their spans."""

    def ours(dtype: torch.dtype) -> Call:
        def ask(x: Tensor) -> Tensor:
            return oracles.SpanTree(x).log_partition()

        return with_gradients(ask, drawn(ROWS, n, n).to(dtype))

    return Race(
        f"spans, {n} words: log-partition and gradients",
        target,
        ours,
        {
            "torch-struct": lambda dtype: with_gradients(
                peers.struct_spans, drawn(ROWS, n, n).to(dtype)
            )
        },
    )


def best_spans(n: int, target: float) -> Race:
    """The best of them."""

    def ours(dtype: torch.dtype) -> Call:
        x = drawn(ROWS, n, n).to(dtype)
        return values(lambda: oracles.SpanTree(x).decode()[0])

    def theirs(dtype: torch.dtype) -> Call:
        x = drawn(ROWS, n, n).to(dtype)
        return lambda: (peers.struct_best_spans(x).detach(),)

    return Race(f"spans, {n} words: decode", target, ours, {"torch-struct": theirs})


def grammar(n: int, symbols: int, target: float) -> Race:
    """A grammar; the peer's symbols are half for words and half for longer spans."""
    half = symbols // 2

    def ours(dtype: torch.dtype) -> Call:
        def ask(words: Tensor, rules: Tensor, top: Tensor) -> Tensor:
            return oracles.Grammar(words, rules, top).log_partition()

        S = symbols
        inputs = drawn(ROWS, n, S), drawn(S, S, S), drawn(S)
        return with_gradients(ask, *(x.to(dtype) for x in inputs))

    def theirs(dtype: torch.dtype) -> Call:
        inputs = (
            drawn(ROWS, n, half),
            drawn(ROWS, half, symbols, symbols),
            drawn(ROWS, half),
        )
        return with_gradients(peers.struct_grammar, *(x.to(dtype) for x in inputs))

    return Race(
        f"grammar, {n} words, {symbols} symbols: log-partition and gradients",
        target,
        ours,
        {"torch-struct (half as many symbols)": theirs},
        comparable=False,
    )


def segments(T: int, S: int, D: int, target: float, *, given: bool) -> Race:
    """Semi-Markov chains: segments have given scores, or sums of those of positions.

    The peer's are always such sums.
    """
    positions = drawn(8, T, S, seed=1)
    moves, durations = drawn(S, S, seed=2), drawn(D, S, seed=3)

    def sums(x: Tensor, durations: Tensor) -> Tensor:
        # of positions t to t + D - 1, added up one by one
        windows = torch.nn.functional.pad(x, (0, 0, 0, D - 1)).unfold(1, D, 1)
        return windows.mT.cumsum(2) + durations

    def ours(dtype: torch.dtype) -> Call:
        def ask(segments: Tensor, moves: Tensor) -> Tensor:
            return oracles.SemiMarkov(segments, moves).log_partition()

        if given:
            return with_gradients(
                ask, sums(positions, durations).to(dtype), moves.to(dtype)
            )
        return with_gradients(
            lambda x, moves, durations: ask(sums(x, durations), moves),
            *(x.to(dtype) for x in (positions, moves, durations)),
        )

    def theirs(dtype: torch.dtype) -> Call:
        inputs = (positions, moves, durations)
        return with_gradients(peers.flash_segments, *(x.to(dtype) for x in inputs))

    kind = "segments" if given else "segments of positions"
    return Race(
        f"{kind}, 8 rows, T = {T}, S = {S}, D = {D}: log-partition and gradients",
        target,
        ours,
        {"flash-semicrf": theirs},
        comparable=False,
    )


def ctc(T: int, M: int, target: float, classes: int = 40) -> Race:
    """Label sequences over frames, the log-softmax included."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(1, classes, (ROWS, M), generator=generator)

    def ours(dtype: torch.dtype) -> Call:
        def ask(x: Tensor) -> Tensor:
            return oracles.CTC(x.log_softmax(-1), labels).log_partition()

        return with_gradients(ask, drawn(ROWS, T, classes).to(dtype))

    def theirs(dtype: torch.dtype) -> Call:
        sizes = torch.full((ROWS,), T), torch.full((ROWS,), M)

        def ask(x: Tensor) -> Tensor:
            frames = x.log_softmax(-1).transpose(0, 1)
            loss = torch.nn.functional.ctc_loss
            return -loss(frames, labels, *sizes, reduction="none")

        return with_gradients(ask, drawn(ROWS, T, classes).to(dtype))

    name = f"CTC, {T} frames, {M} labels: log-partition and gradients"
    return Race(name, target, ours, {"torch.nn.functional.ctc_loss": theirs})


def warping(N: int, M: int, target: float) -> Race:
    """Soft dynamic time warping with gamma 1."""

    def ours(dtype: torch.dtype) -> Call:
        def ask(x: Tensor) -> Tensor:
            return -oracles.Warping(-x).log_partition()

        return with_gradients(ask, drawn(ROWS, N, M).square().to(dtype))

    def theirs(dtype: torch.dtype) -> Call:
        x = drawn(ROWS, N, M).square().to(dtype)
        return with_gradients(peers.soft_warping, x)

    name = f"soft warping, {N} x {M}: value and gradients"
    return Race(name, target, ours, {"pysdtw": theirs})


def tree(V: int, S: int, target: float) -> Race:
    """A rooted binary tree; the peer is a loop over its nodes, batched."""
    parents = [-1, *(v // 2 for v in range(V - 1))]
    inputs = drawn(ROWS, V, S), drawn(ROWS, V, S, S, seed=1)

    def ours(dtype: torch.dtype) -> Call:
        above = torch.tensor(parents)

        def ask(nodes: Tensor, edges: Tensor) -> Tensor:
            return oracles.Tree(nodes, edges, above).log_partition()

        return with_gradients(ask, *(x.to(dtype) for x in inputs))

    def theirs(dtype: torch.dtype) -> Call:
        def ask(nodes: Tensor, edges: Tensor) -> Tensor:
            below = list(nodes.unbind(1))
            for v in range(V - 1, 0, -1):
                message = torch.logsumexp(edges[:, v] + below[v][:, None], 2)
                below[parents[v]] = below[parents[v]] + message
            return torch.logsumexp(below[0], 1)

        return with_gradients(ask, *(x.to(dtype) for x in inputs))

    name = f"tree, {V} nodes, {S} states: log-partition and gradients"
    return Race(name, target, ours, {"a loop in torch": theirs})


def exactly(k: int, n: int) -> tuple[list[list[int]], int]:
    """Clauses of "exactly k of n", by counters: at least i of the first j."""
    clauses: list[list[int]] = []
    fresh = n
    counter: dict[tuple[int, int], int] = {}

    def at_least(j: int, i: int) -> int | None:
        """A variable, or None for what is true anyway; 0 for what is false."""
        if i <= 0:
            return None
        return counter.get((j, i), 0)

    for j in range(1, n + 1):
        for i in range(1, min(j, k + 1) + 1):
            fresh += 1
            counter[j, i] = fresh
            before, less = at_least(j - 1, i), at_least(j - 1, i - 1)
            # fresh <=> before or (less and x_j)
            both = [j] if less is None else [j, less]
            if before:
                clauses.append([-before, fresh])
            if 0 not in both:
                clauses.append([*(-x for x in both), fresh])
                for x in both:
                    clauses.append([-fresh, *([before] if before else []), x])
            elif before:
                clauses.append([-fresh, before])
            else:
                clauses.append([-fresh])
    clauses.append([counter[n, k]])
    if (n, k + 1) in counter:
        clauses.append([-counter[n, k + 1]])
    return clauses, fresh


def sudoku(box: int = 2) -> tuple[list[list[int]], int]:
    """Clauses of a Sudoku with sides of ``box ** 2``."""
    n = box**2

    def x(r: int, c: int, v: int) -> int:
        return (r * n + c) * n + v + 1

    every = range(n)
    units = [[(r, c) for c in every] for r in every]
    units += [[(r, c) for r in every] for c in every]
    units += [
        [(box * i + a, box * j + b) for a in range(box) for b in range(box)]
        for i in range(box)
        for j in range(box)
    ]
    clauses = [[x(r, c, v) for v in every] for r in every for c in every]
    clauses += [
        [-x(r, c, v), -x(r, c, w)]
        for r in every
        for c in every
        for v in every
        for w in range(v)
    ]
    for unit in units:
        for v in every:
            clauses.append([x(r, c, v) for r, c in unit])
            clauses += [
                [-x(*unit[a], v), -x(*unit[b], v)] for a in range(n) for b in range(a)
            ]
    return clauses, n**3


def formula(name: str, clauses: list[list[int]], V: int, target: float) -> Race:
    """The models of a formula; the peer reads the same SDD."""
    compiled = oracles.Formula.from_clauses(clauses, V)
    chances = drawn(ROWS, V, seed=4).sigmoid()

    def ours(dtype: torch.dtype) -> Call:
        def ask(p: Tensor) -> Tensor:
            scores = torch.stack([torch.log1p(-p), p.log()], 2)
            return compiled(scores).log_partition()

        return with_gradients(ask, chances.to(dtype))

    def theirs(dtype: torch.dtype) -> Call:
        module = peers.klay_module(clauses, V)
        return with_gradients(
            lambda p: module(p.log(), torch.log1p(-p)), chances.to(dtype)
        )

    return Race(
        f"formula, {name}: log-partition and gradients",
        target,
        ours,
        {"klaycircuits": theirs},
    )


def all_races() -> list[Race]:
    """In the order of the table."""
    return [
        dependencies(20, 90),
        dependencies(40, 60),
        best_dependencies(20, 1, math.nan),
        best_dependencies(20, 5, 500),
        spans(20, 40),
        spans(40, math.nan),
        best_spans(20, 80),
        grammar(20, 10, 15),
        segments(50, 9, 8, 250, given=True),
        segments(50, 9, 8, math.nan, given=False),
        ctc(100, 30, 6),
        warping(100, 30, 10),
        tree(14, 16, 8),
        tree(26, 64, 12),
        formula("exactly 5 of 20", *exactly(5, 20), 40),
        formula("Sudoku 4 x 4", *sudoku(), 40),
    ]
