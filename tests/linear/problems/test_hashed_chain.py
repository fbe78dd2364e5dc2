"""Features hashed together with labels: every solver against a plain enumeration."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear.features import Templates
from smoothsp.linear.problems import CallbackProblem, ChainProblem, HashedChainProblem
from smoothsp.linear.solvers import (
    BCFW,
    SGD,
    SVRG,
    BatchFrankWolfe,
    CasimirSVRG,
)
from tests.programs import run as run_program
from tests.truth.linear_chain import random_rows

LAM = 0.2
UNEVEN = np.array([[0, 1, 2], [0.5, 0, 1], [3, 1, 0]])
FEATURE, PAIR, START, END = range(4)
BITS = 2**64 - 1


def place(kind, first, label, size):
    """Where the weight of a part is: splitmix64 of all its numbers, in Python's own."""
    z = (kind << 62 | first << 31 | label) + 0x9E3779B97F4A7C15 & BITS
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & BITS
    return (z ^ z >> 31) % size


def draw(size, seed=0, n=6, S=3, d=9, longest=4, **options):
    """A problem, and its sentences as dense rows, labels and costs."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n)
    lengths[-1] = 0
    X = random_rows(rng, lengths.sum(), d)
    labels = rng.integers(S, size=lengths.sum())
    scale = np.linspace(0.3, 2, n)
    problem = HashedChainProblem(
        X, labels, lengths=lengths, num_labels=S, cost=UNEVEN, cost_scale=scale,
        hash_with_label=size, **options,
    )  # fmt: skip
    cuts = np.cumsum(lengths)[:-1]
    parts = zip(np.split(X.toarray(), cuts), np.split(labels, cuts), scale, strict=True)
    return problem, list(parts)


def phi(X, y, size, boundaries=True):
    w = np.zeros(size)
    for x, j in zip(X, y, strict=True):
        for f in np.flatnonzero(x):
            w[place(FEATURE, int(f), int(j), size)] += x[f]
    for i, j in itertools.pairwise(y):
        w[place(PAIR, int(i), int(j), size)] += 1
    if len(y) and boundaries:
        w[place(START, 0, int(y[0]), size)] += 1
        w[place(END, 0, int(y[-1]), size)] += 1
    return w


def enumerated(sentences, size, boundaries=True, S=3):
    """psi, loss and labels of every labelling of every sentence."""
    found = []
    for X, gold, scale in sentences:
        outputs = list(itertools.product(range(S), repeat=len(gold)))
        here = phi(X, gold, size, boundaries)
        psi = np.array([here - phi(X, y, size, boundaries) for y in outputs])
        loss = [
            scale * sum(UNEVEN[g, j] for g, j in zip(gold, y, strict=True))
            for y in outputs
        ]
        found.append((psi, np.array(loss), outputs))
    return found


def behind_oracles(known):
    def few(i, w, k):
        psi, loss, outputs = known[i]
        best = np.argsort(-(loss - psi @ w), kind="stable")[:k]
        return [(psi[y], loss[y], outputs[y]) for y in best]

    def worst(i, w):
        return few(i, w, 1)[0]

    return CallbackProblem(len(known), known[0][0].shape[1], worst, few)


@pytest.mark.parametrize(("size", "boundaries"), [(1, True), (7, False), (1009, True)])
def test_hinges_labels_and_worst_outputs_are_those_of_the_enumeration(size, boundaries):
    problem, sentences = draw(size, boundaries=boundaries)
    known = enumerated(sentences, size, boundaries)
    w = np.random.default_rng(1).normal(size=size)
    hinges, labels = problem.hinges(w), problem.decode(w)
    for i, (psi, loss, _) in enumerate(known):
        np.testing.assert_allclose(hinges[i], (loss - psi @ w).max(), atol=1e-12)
        X, gold, _ = sentences[i]
        found = labels[problem.offsets[i] : problem.offsets[i + 1]]
        score = w @ (phi(X, gold, size, boundaries) - phi(X, found, size, boundaries))
        np.testing.assert_allclose(score, (psi @ w).min(), atol=1e-12)
        corner = problem.worst(i, w)
        here = loss - psi @ w
        np.testing.assert_allclose(corner.loss - corner.psi @ w, here.max(), atol=1e-12)
        assert (
            np.abs(psi - corner.psi).max(1) + np.abs(loss - corner.loss)
        ).min() < 1e-12


SOLVERS = {
    "SGD": lambda: SGD(lam=LAM, max_passes=5),
    "SGD, smoothed": lambda: SGD(
        lam=LAM, loss="hinge-l2", k=4, average_after=1, max_passes=5
    ),
    "SGD, Pegasos": lambda: SGD(lam=LAM, decay="pegasos", max_passes=5),
    "SVRG": lambda: SVRG(lam=LAM, k=3, mu=0.7, max_passes=5),
    "Casimir, const": lambda: CasimirSVRG(lam=LAM, k=4, smoothness=9.0, max_passes=5),
    "Casimir, adapt": lambda: CasimirSVRG(
        lam=LAM, schedule="adapt", warm_start="extrapolation", max_passes=5
    ),
    "BCFW": lambda: BCFW(lam=LAM, averaging=True, max_passes=5),
    "BCFW, pairwise, cached": lambda: BCFW(
        lam=LAM, steps="pairwise", cache=True, max_passes=5
    ),
    "BCFW, away": lambda: BCFW(lam=LAM, steps="away", max_passes=5),
    "BCFW, in a box": lambda: BCFW(lam=LAM, bounds=(-0.2, 0.1), max_passes=5),
    "batch Frank-Wolfe": lambda: BatchFrankWolfe(lam=LAM, max_passes=5),
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("size", [7])
def test_iterates_are_those_on_the_enumeration(name, size):
    problem, sentences = draw(size)
    known = enumerated(sentences, size)
    begin = {}
    if "Frank" not in name and "BCFW" not in name:
        # not 0, where labellings tie
        begin["start"] = SimpleNamespace(w=np.random.default_rng(0).normal(size=size))
    fast, plain = (
        SOLVERS[name]().solve(p, **begin) for p in (problem, behind_oracles(known))
    )
    np.testing.assert_allclose(fast.w, plain.w, rtol=0, atol=1e-9)
    assert fast.primal == pytest.approx(plain.primal, abs=1e-9)
    assert fast.gap == pytest.approx(plain.gap, abs=1e-9, nan_ok=True)
    assert fast.oracle_calls == plain.oracle_calls


def test_without_collisions_it_is_the_plain_problem():
    rng = np.random.default_rng(2)
    X, labels = random_rows(rng, 7, 5), np.array([0, 1, 2, 0, 1, 2, 0])
    plain = ChainProblem(X, labels, lengths=[4, 3])
    hashed = HashedChainProblem(X, labels, lengths=[4, 3], hash_with_label=2**20)
    table = hashed.sequences.tied_index.reshape(hashed.num_rows, -1)[:, :3]
    # else the test says nothing
    assert len(np.unique(table)) == table.size == plain.num_weights
    small = hashed.subset([0, 1])
    assert small.hash_with_label == 2**20
    w = SGD(lam=LAM, max_passes=4).solve(plain).w
    shared = np.zeros(2**20)
    shared[table.ravel()] = w
    np.testing.assert_allclose(small.hinges(shared), plain.hinges(w), rtol=1e-12)


def test_parts_of_a_problem_share_its_weights():
    problem, _ = draw(31)
    w = np.random.default_rng(3).normal(size=31)
    part = problem.subset([3, 1])
    assert part.num_features < problem.num_features
    np.testing.assert_array_equal(part.hinges(w), problem.hinges(w)[[3, 1]])
    assert part.checksum != problem.checksum
    other, _ = draw(37)
    assert other.checksum != problem.checksum


TOKENS = [[("the", "D"), ("cat", "N")], [("a", "D"), ("cat", "N"), ("sat", "V")]]
TEMPLATES = Templates(
    ["word[-1..1]", "pos", "bias"], ["word", "pos"], hash_with_label=23
)
HASHED = """
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import HashedChainProblem
from tests.linear.problems.test_hashed_chain import TEMPLATES, TOKENS
X = TEMPLATES.transform(TOKENS)
problem = HashedChainProblem(X, [0, 1, 0, 1, 2], lengths=X.lengths)
print(problem.sequences.table.tolist(), problem.checksum)
"""


def test_templates_hash_alike(tmp_path):
    X = TEMPLATES.transform(TOKENS)
    assert X.shape == (5, 2**31 - 1) and X.hash_with_label == 23
    problem = HashedChainProblem(X, [0, 1, 0, 1, 2], lengths=X.lengths)
    assert problem.num_weights == 23
    TEMPLATES.save(tmp_path / "templates.json")
    again = Templates.load(tmp_path / "templates.json")
    assert again.hash_with_label == 23
    assert (again.transform(TOKENS) != X).nnz == 0
    # the words of a sentence in other company have the same weights
    w = np.random.default_rng(0).normal(size=23)
    Y = TEMPLATES.transform(TOKENS[1:])
    alone = HashedChainProblem(Y, [0, 1, 2], lengths=Y.lengths)
    np.testing.assert_array_equal(alone.hinges(w), problem.hinges(w)[1:])


@pytest.mark.long
def test_templates_hash_alike_in_every_process():
    X = TEMPLATES.transform(TOKENS)
    problem = HashedChainProblem(X, [0, 1, 0, 1, 2], lengths=X.lengths)
    output = run_program(sys.executable, "-c", HASHED).stdout
    assert (
        output.split()
        == f"{problem.sequences.table.tolist()} {problem.checksum}".split()
    )


def test_wrong_arguments_are_named():
    X, y = np.eye(2), [0, 1]
    with pytest.raises(
        ValueError, match=r"^hash_with_label: expected the number of weights"
    ):
        HashedChainProblem(X, y, lengths=[2])
    with pytest.raises(
        ValueError, match=r"^hash_with_label: expected at least 1, got 0"
    ):
        HashedChainProblem(X, y, lengths=[2], hash_with_label=0)
    with pytest.raises(
        ValueError, match=r"^hash_with_label: expected a number from 1 to"
    ):
        HashedChainProblem(X, y, lengths=[2], hash_with_label=2**31)
    with pytest.raises(TypeError, match=r"^hash_with_label: expected an int, got 2.5"):
        HashedChainProblem(X, y, lengths=[2], hash_with_label=2.5)
    with pytest.raises(
        ValueError, match=r"^hash_with_label: expected None with hashing"
    ):
        Templates(["word"], hashing=8, hash_with_label=8)
    with pytest.raises(
        ValueError, match=r"^hash_with_label: expected a number from 1 to"
    ):
        Templates(["word"], hash_with_label=0)
    with pytest.raises(ValueError, match=r"^w: expected .7,. weights, got .6,.$"):
        draw(7)[0].hinges(np.zeros(6))
    wrong = sparse.csr_matrix((np.array([np.nan]), [0], [0, 1]), shape=(1, 1))
    with pytest.raises(ValueError, match=r"^features: expected finite numbers"):
        HashedChainProblem(wrong, [0], lengths=[1], num_labels=2, hash_with_label=7)
