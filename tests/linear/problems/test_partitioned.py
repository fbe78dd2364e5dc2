"""Sums over examples by parts, here, in processes and on a cluster."""

import functools
import os
import signal

import joblib
import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear.problems import (
    BatchProblem,
    ChainProblem,
    HashedChainProblem,
    PartitionedProblem,
    Parts,
    StructureProblem,
)
from smoothsp.linear.solvers import BCFW, BMRM, LBFGS, SGD, BatchFrankWolfe
from smoothsp.oracles import ProjectiveDependencies
from tests.truth.linear_chain import random_chain

RNG = np.random.default_rng(8)


def trees(potentials, batch):
    lengths = batch.sizes["arcs"][:, 0] - 1
    return ProjectiveDependencies(potentials["arcs"], lengths=lengths)


def treebank(n=9):
    sizes = RNG.integers(2, 5, size=n)
    X = sparse.random(int((sizes**2).sum()), 300, 0.05, "csr", random_state=0)
    X.sort_indices()
    arcs = {"arcs": Parts(X, np.stack([sizes, sizes], 1))}
    gold = StructureProblem(trees, arcs).decode(RNG.normal(size=300))
    return StructureProblem(trees, arcs, gold)


def hashed():
    X, y = sparse.random(12, 40, 0.2, "csr", random_state=1), RNG.integers(3, size=12)
    X.sort_indices()
    return HashedChainProblem(X, y, lengths=[5, 4, 3], hash_with_label=50)


MAKE = {
    "chain": lambda: random_chain(3, n=7, cost_scale=RNG.uniform(0.5, 2, size=7)),
    "hashed": hashed,
    "trees": treebank,
}


@functools.cache
def drawn(name):
    """Drawn when it is asked for: kernels are called."""
    return MAKE[name]()


def near(found, expected, atol=1e-11):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=atol)


@pytest.mark.parametrize("name", MAKE)
def test_parts_add_up_to_the_whole(name):
    whole = drawn(name)
    parts = PartitionedProblem(whole, 3)
    assert isinstance(parts, BatchProblem) and len(parts) == len(whole)
    w = RNG.normal(size=whole.num_weights)
    for question, arguments in (
        ("risk", ()),
        ("likelihood", ()),
        ("smoothed_risk", (0.5,)),
        ("smoothed_risk", (0.5, "l2")),
        ("corners", (0.3,)),
        ("mean_slope", ("hinge-entropy", 0.5, 1)),
        ("mean_slope", ("hinge-l2", 0.5, 3)),
        ("mean_slope", ("hinge", 0.0, 1)),
    ):
        found = getattr(parts, question)(w, *arguments)
        expected = getattr(whole, question)(w, *arguments)
        for a, b in zip(found, expected, strict=True):
            near(a, b)
    near(parts.hinges(w), whole.hinges(w))
    near(parts.primal(w, 0.1), whole.primal(w, 0.1))
    near(parts.diameter(), whole.diameter())


SOLVERS = [
    BatchFrankWolfe(lam=0.3, tol=0.2),
    LBFGS(lam=0.3, loss="hinge-entropy", mu=0.5, tol=1e-4),
    BMRM(lam=0.3, tol=1e-3),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("name", ["chain", "trees"])
def test_solvers_of_the_whole_set_end_at_the_same_certificate(name, solver):
    whole = solver.solve(drawn(name))
    parts = solver.solve(PartitionedProblem(drawn(name), 2))
    assert whole.converged and parts.converged
    near([parts.primal, parts.dual], [whole.primal, whole.dual], 1e-8)
    # sums in another order are rounded otherwise, and of cuts that are tied another one
    # may come first: a pass more or less
    assert abs(parts.passes - whole.passes) <= isinstance(solver, BMRM)


def test_solvers_that_visit_examples_raise():
    parts = PartitionedProblem(drawn("trees"), 2)
    for solver in (BCFW(lam=1.0), SGD(lam=1.0)):
        with pytest.raises(TypeError, match="expected examples in this process"):
            solver.solve(parts)


def test_large_arrays_are_files_and_calls_are_small(tmp_path, monkeypatch):
    X = sparse.random(400, 50, 0.3, "csr", random_state=2)
    X.sort_indices()
    y = RNG.integers(3, size=400)
    problem = HashedChainProblem(X, y, lengths=[40] * 10, hash_with_label=100)
    parts = PartitionedProblem(problem, 2, folder=tmp_path / "parts")
    files = list(tmp_path.glob("parts/*/*.npy"))
    assert sum(path.stat().st_size for path in files) > X.data.nbytes
    assert max(len(part[1]) for part in parts._parts) < X.data.nbytes / 4
    before = [path.read_bytes() for path in files]
    w = np.ones(problem.num_weights)
    near(parts.risk(w)[1], problem.risk(w)[1])
    # what workers write to a part stays with them
    assert [path.read_bytes() for path in files] == before
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alone = PartitionedProblem(problem, 2)
    assert len(list(tmp_path.glob("smoothsp-*/part1"))) == 1
    del alone
    assert not list(tmp_path.glob("smoothsp-*"))


def test_problems_may_share_a_folder(tmp_path):
    y, lengths = RNG.integers(3, size=200), [5] * 40
    drawn = (RNG.normal(size=(200, 9)) for _ in range(2))
    problems = [ChainProblem(X, y, lengths=lengths) for X in drawn]
    parts = [PartitionedProblem(x, 2, folder=tmp_path) for x in problems]
    parts.append(PartitionedProblem(problems[0], 3, folder=tmp_path))
    files = sorted(tmp_path.glob("*/*"))
    assert files and all(path.suffix == ".npy" for path in files)
    for whole, found in zip([*problems, problems[0]], parts, strict=True):
        w = RNG.normal(size=whole.num_weights)
        near(found.risk(w)[0], whole.risk(w)[0])
    # once more is no more
    PartitionedProblem(problems[1], 2, folder=tmp_path)
    assert sorted(tmp_path.glob("*/*")) == files


def test_what_does_not_fit_is_named():
    chain = drawn("chain")
    with pytest.raises(ValueError, match="partitions: expected at most the 7 examples"):
        PartitionedProblem(chain, 8)
    with pytest.raises(ValueError, match="partitions: expected at least 1"):
        PartitionedProblem(chain, 0)
    with pytest.raises(TypeError, match=r"problem: expected one with subset\(rows\)"):
        PartitionedProblem([1, 2], 1)


@pytest.mark.long
def test_two_processes_give_the_bits_of_one():
    problem, solver = drawn("chain"), LBFGS(lam=0.3, max_passes=3)
    one = solver.solve(PartitionedProblem(problem, 2))
    two = solver.solve(PartitionedProblem(problem, 2, n_jobs=2))
    assert two.w.tobytes() == one.w.tobytes()
    assert (two.primal, two.dual, two.gap) == (one.primal, one.dual, one.gap)


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_gives_the_bits_of_one_process():
    distributed = pytest.importorskip("distributed")
    problem, options = drawn("trees"), {"lam": 0.3, "tol": 1e-5}
    one = LBFGS(**options).solve(PartitionedProblem(problem, 4))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        killed = []

        def kill(record):
            if record.passes == 3:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        parts = PartitionedProblem(problem, 4)
        run = LBFGS(**options, callback=kill).solve(parts)
    assert len(killed) == 1 and run.passes > 4
    assert run.w.tobytes() == one.w.tobytes() and run.gap == one.gap
