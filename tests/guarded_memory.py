"""A program that asks everything of batches in which something is empty or single.

``test_guarded_memory`` runs it where a write beyond an array ends the process: numba
checks indices, and the C library the ends of what it handed out. Results that torch
handed out for compiled code to fill lie between two strips that must stay as they are.

    python -m tests.guarded_memory float64 chains circuits
"""

import itertools
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from smoothsp import LinearChain
from smoothsp.linear import CrammerSingerSVC, HingeSVC, WestonWatkinsSVC
from smoothsp.linear.problems import ChainProblem, MulticlassProblem
from smoothsp.linear.solvers import BCFW, LBFGS, SGD, SVRG, CasimirSVRG
from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import (
    CTC,
    Alignment,
    BinaryGraph,
    BoxSearch,
    Chain,
    Grammar,
    Matching,
    Multiclass,
    PictorialStructure,
    ProjectiveDependencies,
    SemiMarkov,
    ShortestPath,
    SpanningTree,
    SpanTree,
    SumStructure,
    Tree,
)
from smoothsp.oracles._circuits import CircuitStructure
from smoothsp.oracles._searches.structure import SearchStructure
from smoothsp.projections import (
    project_box_equality,
    project_simplex,
    project_weston_watkins,
)
from tests.truth import recurrence
from tests.truth.chain_cases import ChainCase

LOSSES = "hinge", "hinge-l2", "hinge-entropy", "likelihood"
STRIP = 64
MARK = 0x5A
MAKERS = ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty"))


@contextmanager
def guarded() -> Iterator[None]:
    """Uninitialised tensors lie between strips, which are looked at in the end."""
    rooms: list[Tensor] = []
    makers = [getattr(owner, name) for owner, name in MAKERS]

    def between_strips(maker):
        def make(*args, **options):
            # where the real one would be, and what it would look like
            model = maker(*args, **options)
            if model.device.type != "cpu":
                return model
            size = model.numel() * model.itemsize
            room = torch.full((size + 2 * STRIP,), MARK, dtype=torch.uint8)
            rooms.append(room)
            inside = room[STRIP : STRIP + size].view(model.dtype).reshape(model.shape)
            return inside.requires_grad_(model.requires_grad)

        return make

    for (owner, name), maker in zip(MAKERS, makers, strict=True):
        setattr(owner, name, between_strips(maker))
    try:
        yield
    finally:
        for (owner, name), maker in zip(MAKERS, makers, strict=True):
            setattr(owner, name, maker)
    for room in rooms:
        strips = torch.cat([room[:STRIP], room[-STRIP:]])
        assert bool((strips == MARK).all()), "something wrote beside its result"


def chains(dtype: torch.dtype) -> Iterator[tuple[Chain, ChainCase, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for B, T, S in itertools.product((0, 1, 17), (0, 1, 3), (1, 13, 33)):
        masks = ("all", "some", "none") if T > 0 else ("all",)
        for per_edge, real in itertools.product((False, True), masks):
            edges = (B, max(T - 1, 0), S, S) if per_edge else (S, S)
            drawn = [
                torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
                for shape in ((B, T, S), edges, (S,), (S,))
            ]
            mask = torch.rand(B, T, generator=generator) < 0.6
            mask = {"all": None, "some": mask, "none": mask & False}[real]
            labels = torch.randint(0, S, (B, T), generator=generator)
            exact = [x.detach().double() for x in drawn]
            yield Chain(*drawn, mask=mask), ChainCase(*exact, mask=mask), labels


def ask_chain(chain: Chain, case: ChainCase, y: Tensor) -> None:
    tolerance = 1e-4 if chain.emissions.dtype == torch.float32 else 1e-10

    def same(found: Tensor, truth: Tensor) -> None:
        torch.testing.assert_close(found.double(), truth, rtol=0, atol=tolerance)

    potentials = [chain.emissions, chain.transitions, chain.start, chain.end]
    # more outputs than there are
    values, ys, valid = chain.decode_topk(7)
    assert values.shape == valid.shape == (len(y), 7)
    assert ys.shape == (len(y), 7, y.shape[1])
    with torch.no_grad():
        same(chain.decode()[0], recurrence.maximum(case))
    log_z = chain.log_partition()
    same(log_z, recurrence.log_partition(case))
    found = [
        values[:, 0],
        chain.decode()[0],
        log_z,
        chain.marginals().sum((1, 2)),
        chain.edge_marginals().sum((1, 2, 3)),
        chain.entropy(),
        chain.score(y),
        chain.log_prob(y),
        chain.log_prob(y[:, None].expand(-1, 3, -1))[:, 2],
        chain.log_count(),
        chain.sample(2).double().sum((1, 2)),
        chain.label_counts(y).sum(1),
    ]
    totals = [chain.log_likelihood(y), chain.violation(y)]
    totals += [
        loss(chain, y)
        for loss in (
            CRFLoss(),
            StructuralHinge(),
            StructuralHinge(Entropy(0.5)),
            StructuralHinge(L2(0.5, 3)),
            StructuralHinge(L2(0.5, "exact", max_k=8)),
            StructuredPerceptron(),
        )
        if len(y)
    ]
    assert all(bool(torch.isfinite(x).all()) for x in (*found, *totals))
    empty = ~case.real.any(1)
    assert all(bool((x[empty] == 0).all()) for x in found[:-2])
    total = sum(x.sum() for x in (*found, *totals))
    grads = torch.autograd.grad(total, potentials)
    assert all(bool(torch.isfinite(g).all()) for g in grads)


def ask_chains(dtype: torch.dtype, step: int = 1) -> None:
    some = itertools.islice(chains(dtype), 0, None, step)
    for number, (chain, case, y) in enumerate(some):
        try:
            with guarded():
                ask_chain(chain, case, y)
        except Exception as error:
            error.add_note(f"{number}: {chain!r}")
            raise


def ask_layer(dtype: torch.dtype) -> None:
    """The call by which it was found, often enough to meet what it damages."""
    head = LinearChain(12).to(dtype)
    for _ in range(20):
        nothing = torch.zeros(16, 0, 12, dtype=dtype)
        loss = head.loss(nothing, torch.zeros(16, 0, dtype=torch.int64))
        assert loss.item() == 0


def ask_multiclass(dtype: torch.dtype) -> None:
    for B, M in itertools.product((0, 1, 5), (1, 3)):
        for mask in (None, torch.zeros(B, M, dtype=torch.bool)):
            structure = Multiclass(torch.randn(B, M, dtype=dtype), mask=mask)
            values, _, _ = structure.decode_topk(5)
            assert values.shape == (B, 5)
            for question in ("decode", "log_partition", "marginals", "entropy"):
                getattr(structure, question)()
            structure.sample(2)


def ask_projections(dtype: torch.dtype) -> None:
    for B, m in itertools.product((0, 1, 17), (1, 2, 15, 16, 33)):
        with guarded():
            v = torch.randn(B, m, dtype=dtype)
            b = project_simplex(v, 1.0)
            torch.testing.assert_close(b.sum(1), torch.ones(B, dtype=dtype))
            b = project_weston_watkins(v, 0.5)
            assert bool(((b >= 0) & (b <= 0.5)).all())
            assert bool((project_weston_watkins(v, 0.0) == 0).all())
            b = project_box_equality(v, 0.0, 1.0, 1.0, 0.5 * m, v.abs() + 1)
            torch.testing.assert_close(b.sum(1), torch.full((B,), 0.5 * m, dtype=dtype))


def ask_estimators(dtype: torch.dtype) -> None:
    kind = str(dtype).removeprefix("torch.")
    for n, d, classes in ((2, 1, 2), (3, 1, 3), (18, 2, 17)):
        for X in (np.zeros((n, d)), np.eye(n, d)):
            X = sparse.csr_matrix(X.astype(kind))
            y = np.arange(n) % classes
            for estimator in (WestonWatkinsSVC(), CrammerSingerSVC(), HingeSVC()):
                if classes == 2 or not isinstance(estimator, HingeSVC):
                    assert math.isfinite(estimator.fit(X, y).gap_)


def ask_linear(dtype: torch.dtype) -> None:
    kind = str(dtype).removeprefix("torch.")
    for lengths, S in (([1], 2), ([1, 1], 2), ([1, 3], 17)):
        total = sum(lengths)
        for X in (np.zeros((total, 1)), np.eye(total)):
            X = sparse.csr_matrix(X.astype(kind))
            y = np.arange(total) % S
            problems = [
                ChainProblem(X, y, lengths=lengths, num_labels=S),
                MulticlassProblem(X, y, num_labels=S),
            ]
            for problem in problems:
                for solver in (
                    BCFW(lam=0.1, max_passes=3),
                    # more labellings kept than there are
                    BCFW(lam=0.1, max_passes=3, steps="pairwise", cache=True),
                    *(SGD(lam=0.1, loss=loss, max_passes=3) for loss in LOSSES),
                    SVRG(lam=0.1, max_passes=3),
                    CasimirSVRG(lam=0.1, max_passes=3),
                    LBFGS(lam=0.1, max_passes=3),
                ):
                    assert np.isfinite(solver.solve(problem).w).all()


def circuits(dtype: torch.dtype) -> Iterator[CircuitStructure]:
    """Structures of 0, 1 and 17 rows, of which something is empty or single."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    for B, n in itertools.product((0, 1, 17), (0, 1, 4)):
        lengths = torch.randint(0, n + 1, (B,), generator=generator)
        some = lengths.clamp(min=min(n, 1))
        yield ProjectiveDependencies(drawn(B, n + 1, n + 1), lengths=lengths)
        yield ProjectiveDependencies(drawn(B, n + 1, n + 1), single_root=True)
        if n:
            yield SpanTree(drawn(B, n, n), lengths=some)
            yield SpanTree(drawn(B, n, n, 5))
            rules, words = drawn(3, 3, 3), drawn(B, n, 3)
            yield Grammar(words, rules, drawn(3), lengths=some)
        for S in (1, 5):
            yield SemiMarkov(drawn(B, n, 2, S), drawn(S, S), lengths=lengths)
            parents = torch.arange(n) - 1
            yield Tree(drawn(B, n, S), drawn(n, S, S), parents)
        yield CTC(drawn(B, 2 * n + 1, 3), torch.ones(B, n, dtype=torch.int64))
        yield Alignment(drawn(B, n, 2), lengths_first=lengths)


def ask_circuits(dtype: torch.dtype) -> None:
    for structure in circuits(dtype):
        with guarded():
            values, ys, valid = structure.decode_topk(5)
            # the best outputs exist, and cost what they score
            best, y = structure.decode()
            torch.testing.assert_close(structure.score(y), best)
            torch.testing.assert_close(values[:, 0], best)
            rows = valid.all(1)
            structure.select(rows).score(ys[rows])
            log_z, entropy = structure.log_partition(), structure.entropy()
            chances = structure.marginals()
            draws = structure.sample(3)
            found = [best, log_z, entropy, chances.flatten(1).sum(1)]
            found += [structure.log_prob(draws)[:, 1], structure.log_count()]
            assert all(bool(torch.isfinite(x).all()) for x in found)
            leaves = [
                *structure._row_potentials.values(),
                *structure._shared_potentials.values(),
            ]
            leaves = [x for x in leaves if x.requires_grad]
            (total := sum(x.sum() for x in found)).backward(retain_graph=True)
            again = torch.autograd.grad(log_z.sum(), leaves, create_graph=True)
            torch.autograd.grad(sum(x.square().sum() for x in again), leaves)
            assert math.isfinite(total.item())


def searches(dtype: torch.dtype) -> Iterator[SearchStructure]:
    """Structures of 0, 1 and 5 rows, of which something is empty or single."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    for B, n in itertools.product((0, 1, 5), (0, 1, 4)):
        lengths = torch.randint(0, n + 1, (B,), generator=generator)
        for single in (False, True):
            arcs = drawn(B, n + 1, n + 1)
            yield SpanningTree(arcs, lengths=lengths, single_root=single)
            yield Matching(drawn(B, n, 3 + single), partial=single)
            yield Matching(drawn(B, 3, n + single), partial=single)
        shared = torch.stack([torch.arange(n), (torch.arange(n) + 1) % max(n, 1)], 1)
        for index in (shared[: n if n > 1 else 0], shared[:0]):
            for each in (index, index.expand(B, -1, 2)):
                edges = drawn(B, len(index)).abs()
                yield BinaryGraph(drawn(B, n, 2), edges, each)
        index = torch.randint(n + 1, (n, 2), generator=generator)
        path = torch.cat([index, torch.tensor([[0, n]])])
        for each in (path, path.expand(B, -1, 2)):
            yield ShortestPath(-drawn(B, n + 1).abs(), each, 0, n)
        if n:
            yield BoxSearch(drawn(B, n, 1))
            yield BoxSearch(drawn(B, 2, n))
            springs = drawn(B, n, 4).abs()
            yield PictorialStructure(drawn(B, n, 1, n), springs, torch.arange(n) - 1)


def ask_searches(dtype: torch.dtype) -> None:
    for structure in searches(dtype):
        with guarded():
            values, ys, valid = structure.decode_topk(5)
            best, y = structure.decode()
            torch.testing.assert_close(structure.score(y), best)
            torch.testing.assert_close(values[:, 0], best)
            rows = valid.all(1)
            structure.select(rows).score(ys[rows])
            found = [best]
            if isinstance(structure, SumStructure):
                log_z = structure.log_partition()
                found += [log_z, structure.marginals().sum((1, 2))]
                found += [structure.entropy(), structure.log_count()]
                found += [structure.log_prob(structure.sample(3))[:, 1]]
                leaf = structure._first_potentials
                again = torch.autograd.grad(log_z.sum(), leaf, create_graph=True)
                curve = again[0].square().sum()
                torch.autograd.grad(curve, leaf, retain_graph=True)
            assert all(bool(torch.isfinite(x).all()) for x in found)
            if isinstance(structure, Matching | BinaryGraph | PictorialStructure):
                found += [structure.max_marginals().flatten(1).sum(1)]
            sum(x.sum() for x in found).backward()


PARTS = {
    part.__name__.removeprefix("ask_"): part
    for part in (
        ask_layer,
        ask_chains,
        ask_circuits,
        ask_searches,
        ask_multiclass,
        ask_projections,
        ask_estimators,
        ask_linear,
    )
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    dtype = getattr(torch, sys.argv[1])
    for name in sys.argv[2:] or PARTS:
        PARTS[name](dtype)
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
