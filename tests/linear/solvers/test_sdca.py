"""Dual coordinate ascent against published formulas, enumeration and L-BFGS."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.linear import ChainCRF
from smoothsp.linear.engines.dual_ascent import DualAscentEngine
from smoothsp.linear.inputs import arrays
from smoothsp.linear.problems import (
    ChainProblem,
    HashedChainProblem,
    MulticlassProblem,
)
from smoothsp.linear.solvers import LBFGS, SDCA, Tolerance
from tests.truth.frank_wolfe import as_callbacks
from tests.truth.linear_chain import labellings, phi, random_chain, random_rows

LAM = 0.05


def published():
    """12 sequences of 5 positions, 3 labels and 4 features, without a random stream."""
    n, t, f = np.ogrid[:12, :5, :4]
    X = np.sin(1 + 7 * n + 3 * t + 5 * f + n * t * f)
    y = (np.arange(12)[:, None] * 5 + np.arange(5) ** 2) % 3
    return ChainProblem(X.reshape(-1, 4), y.ravel(), lengths=[5] * 12, boundaries=False)


def drawn(seed, S=3, lengths=(0, 1, 2, 4, 3), **options):
    rng = np.random.default_rng(seed)
    X = random_rows(rng, sum(lengths), 5)
    y = rng.integers(S, size=sum(lengths))
    return ChainProblem(X, y, lengths=lengths, num_labels=S, **options)


def classes(seed=0, S=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(S, size=9)
    scales = rng.uniform(0, 2, 9)
    return MulticlassProblem(random_rows(rng, 9, 5), y, num_labels=S, loss_scale=scales)


def hashed(seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(10, 4)), rng.integers(3, size=10)
    sizes = {"lengths": [3, 0, 1, 6], "num_labels": 3}
    return HashedChainProblem(X, y, hash_with_label=11, **sizes)


WEIGHTS = [0.0, 2.0, 1.0, 0.3, 1.7]
PROBLEMS = {
    "chain": drawn(0),
    "two labels": drawn(1, S=2, lengths=(1, 0, 6, 2)),
    "nine labels": drawn(2, S=9),
    "twenty labels": drawn(3, S=20, lengths=(3, 2)),
    "no boundaries": drawn(4, boundaries=False),
    "weights": drawn(5, loss_scale=WEIGHTS),
    "pairs that occur": drawn(6, all_pairs=False, loss_scale=WEIGHTS),
    "pairs that occur, no boundaries": drawn(7, all_pairs=False, boundaries=False),
    "classes": classes(),
    "hashed": hashed(),
    "no features": ChainProblem(
        np.zeros((6, 2)), [0, 1, 1, 0, 1, 1], lengths=[3, 1, 2]
    ),
}
each = pytest.mark.parametrize("name", PROBLEMS)


class Point:
    """Blocks of an engine in plain numpy: their entropy, weights and dual."""

    def __init__(self, engine, problem, lam):
        self.problem, self.lam = problem, lam
        nodes, self.edges = (x for x in engine.blocks)
        self.nodes = np.split(nodes, problem.offsets[1:-1])

    def entropy(self, i):
        nodes, edges = self.nodes[i], self.edges[i]
        if len(nodes) == 1:
            return -_xlogx(nodes)
        return _xlogx(nodes[1:-1]) - _xlogx(edges)

    def w(self):
        p = self.problem
        total = np.zeros(p.num_weights)
        for i, (nodes, edges) in enumerate(zip(self.nodes, self.edges, strict=True)):
            y = p.labels[p.offsets[i] : p.offsets[i + 1]]
            D, E = -nodes, -edges.sum(0)
            D[np.arange(len(y)), y] += 1
            np.add.at(E, (y[:-1], y[1:]), 1)
            total += p.loss_scale[i] * self._features(i, D, E)
        return p.without_unseen(total / (self.lam * len(p)))

    def _features(self, i, D, E):
        p = self.problem
        rows = slice(p.offsets[i], p.offsets[i + 1])
        flat = np.zeros((p.num_rows, p.num_labels))
        for t in range(rows.start, rows.stop):
            for e in range(p.indptr[t], p.indptr[t + 1]):
                flat[p.indices[e]] += p.values[e] * D[t - rows.start]
        if p.transitions:
            flat[p.num_features : p.num_features + p.num_labels] = E
        if p.boundaries and len(D):
            flat[-2:] = D[0], D[-1]
        if isinstance(p, HashedChainProblem):
            places = p.sequences.tied_index.reshape(p.num_rows, -1)[:, : p.num_labels]
            return np.bincount(places.ravel(), flat.ravel(), p.num_weights)
        return flat.ravel()

    def dual(self):
        p, w = self.problem, self.w()
        entropies = [c * self.entropy(i) for i, c in enumerate(p.loss_scale)]
        return np.mean(entropies) - self.lam / 2 * w @ w


def _xlogx(x):
    return float(np.sum(x * np.log(np.where(x > 0, x, 1))))


def primal(problem, w, lam):
    return lam / 2 * w @ w + problem.likelihood(w)[0]


def minimum(problem, lam):
    return LBFGS(lam=lam, tol=1e-12, max_passes=5000).solve(problem)


# --- numbers of a published instance ---


def test_the_optimum_is_the_published_one():
    found = SDCA(lam=LAM, tol=1e-12).solve(published())
    np.testing.assert_allclose(found.primal, 5.2229260905, atol=2e-10)
    np.testing.assert_allclose(found.w @ found.w, 0.9392366316, atol=3e-6)
    np.testing.assert_allclose(found.w[0], 0.0634058100, atol=3e-6)


def test_the_gap_at_the_models_own_marginals_is_that_of_the_gradient():
    problem = published()
    w = np.linspace(-1, 1, 21)
    engine = DualAscentEngine(problem, LAM)
    engine.set_duals_at(problem.padded_weights(w))
    gap = primal(problem, w, LAM) - Point(engine, problem, LAM).dual()
    slope = LAM * w + problem.likelihood(w)[1]
    np.testing.assert_allclose(gap, 7.8689479841, atol=1e-9)
    np.testing.assert_allclose(gap, slope @ slope / (2 * LAM), rtol=1e-12)
    # that of L-BFGS, which evaluates w first
    start = LBFGS(lam=LAM, max_passes=1).solve(problem, start=w)
    np.testing.assert_allclose(start.gap, gap, rtol=1e-12)


def test_passes_in_order_are_the_published_ones():
    problem = published()
    engine = DualAscentEngine(problem, LAM, precision=1e-10, uniform_weight=0.1)
    expected = {
        1: (6.6594212126, 3.1327814924, 3.5266e00),
        10: (5.2472603439, 5.1625364151, 8.4724e-02),
        40: (5.2229987786, 5.2228255856, 1.7319e-04),
    }
    for passed in range(1, 41):
        engine.visit_in_order(np.arange(12))
        if passed in expected:
            found = engine.compute_certificate()
            np.testing.assert_allclose(found[:2], expected[passed][:2], atol=1e-9)
            np.testing.assert_allclose(found[2], expected[passed][2], rtol=1e-4)
    assert engine.evaluations < 4 * 40 * 12


def test_a_search_of_few_evaluations_is_as_good():
    fine, coarse = (
        DualAscentEngine(published(), LAM, **more)
        for more in ({"precision": 1e-10}, {})
    )
    for _ in range(20):
        fine.visit_in_order(np.arange(12))
        coarse.visit_in_order(np.arange(12))
    assert coarse.compute_certificate()[2] < 1.1 * fine.compute_certificate()[2]
    assert coarse.evaluations < 1.5 * 20 * 12


# --- what holds at each point ---


@each
@pytest.mark.parametrize("lam", [0.01, 1.0])
def test_the_optimum_is_that_of_lbfgs(name, lam):
    problem = PROBLEMS[name]
    best = minimum(problem, lam)
    for sampling in ("gap", "permutation", "uniform"):
        found = SDCA(lam=lam, sampling=sampling, tol=1e-10).solve(problem)
        assert found.converged
        assert best.primal - 1e-9 <= found.primal <= best.primal + 2e-10
        np.testing.assert_allclose(found.w, best.w, atol=5 * np.sqrt(1e-10 / lam))


@st.composite
def visits(draw):
    S = draw(st.sampled_from([2, 3, 5, 9]))
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    if not sum(lengths):
        lengths.append(1)
    scales = draw(
        st.lists(
            st.sampled_from([0.0, 0.5, 1.0, 3.0]),
            min_size=len(lengths),
            max_size=len(lengths),
        )
    )
    problem = drawn(
        draw(st.integers(0, 99)),
        S,
        lengths,
        loss_scale=scales,
        all_pairs=draw(st.booleans()),
        boundaries=draw(st.booleans()),
    )
    order = st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=12)
    return problem, draw(order), draw(st.sampled_from([1e-4, 0.01, 0.3, 20.0]))


@given(visits())
def test_duals_never_fall_and_gaps_are_those_of_primal_and_dual(drawn_visits):
    check_visits(*drawn_visits)


def check_visits(problem, order, lam):
    engine = DualAscentEngine(problem, lam)
    before = Point(engine, problem, lam).dual()
    for i in order:
        engine.visit_in_order(np.array([i]))
        point = Point(engine, problem, lam)
        dual = point.dual()
        assert dual >= before - 1e-12 * max(abs(before), 1)
        before = dual
    size = max(abs(point.w()).max(), 1)
    np.testing.assert_allclose(engine.w, point.w(), atol=1e-12 * size)
    found = engine.compute_certificate()
    value = primal(problem, engine.w, lam)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], dual, atol=1e-11 * max(value, 1))
    np.testing.assert_allclose(found[2], value - dual, atol=1e-11 * max(value, 1))
    assert (engine.gap_estimates >= 0).all()
    for nodes, edges in zip(point.nodes, point.edges, strict=True):
        np.testing.assert_allclose(nodes.sum(1), 1, atol=1e-12)
        if len(nodes) > 1:
            np.testing.assert_allclose(edges.sum(2), nodes[:-1], atol=1e-12)
            np.testing.assert_allclose(edges.sum(1), nodes[1:], atol=1e-12)
        assert (nodes >= 0).all()
        assert (edges >= 0).all()


def test_marginals_stay_consistent_over_a_thousand_steps():
    problem = PROBLEMS["chain"]
    engine = DualAscentEngine(problem, 1e-3)
    rng = np.random.default_rng(0)
    for _ in range(200):
        engine.visit_in_order(rng.integers(5, size=5))
    point = Point(engine, problem, 1e-3)
    np.testing.assert_allclose(engine.w, point.w(), atol=1e-11)
    for nodes, edges in zip(point.nodes, point.edges, strict=True):
        np.testing.assert_allclose(nodes.sum(1), 1, atol=1e-12)
        if len(nodes) > 1:
            np.testing.assert_allclose(edges.sum(2), nodes[:-1], atol=1e-12)


def test_steps_on_one_example_reach_its_own_optimum():
    problem = drawn(3, lengths=(4,))
    engine = DualAscentEngine(problem, 0.1)
    engine.visit_in_order(np.zeros(60, np.int64))
    assert engine.compute_certificate()[2] < 1e-12
    np.testing.assert_allclose(engine.w, minimum(problem, 0.1).w, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 100.0, 3000.0])
def test_marginals_at_weights_are_those_of_enumeration(scale):
    problem = random_chain(1, n=4, S=3, longest=4)
    w = scale * np.random.default_rng(0).normal(size=problem.num_weights)
    engine = DualAscentEngine(problem, LAM)
    engine.set_duals_at(problem.padded_weights(w))
    nodes, edges = engine.blocks
    for i in range(len(problem)):
        outputs = np.array(labellings(problem, i))
        scores = np.array([w @ phi(problem, i, y) for y in outputs])
        p = np.exp(scores - scores.max())
        p /= p.sum()
        for t in range(outputs.shape[1]):
            truth = np.bincount(outputs[:, t], p, 3)
            found = nodes[problem.offsets[i] + t]
            np.testing.assert_allclose(found, truth, atol=1e-12 * scale)
            if t > 0:
                pairs = 3 * outputs[:, t - 1] + outputs[:, t]
                truth = np.bincount(pairs, p, 9).reshape(3, 3)
                np.testing.assert_allclose(edges[i][t - 1], truth, atol=1e-12 * scale)
    # and dual ascent goes on from there
    found = SDCA(lam=LAM, tol=1e-8).solve(problem, start=w)
    np.testing.assert_allclose(found.primal, minimum(problem, LAM).primal, atol=1e-7)


@pytest.mark.parametrize("size", [1e2, 1e3, 1e5])
@pytest.mark.parametrize("longest", [1, 4])
def test_duals_of_scores_far_apart_are_bounds(size, longest):
    # probabilities below any float64 have logarithms in the thousands
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest + 1, 9)
    rows = int(lengths.sum())
    X, y = size * rng.normal(size=(rows, 3)), rng.integers(3, size=rows)
    problem = ChainProblem(X, y, lengths=lengths)
    without_weights = np.log(3) * rows / 9
    seen = []
    settings = {"max_passes": 60, "tol": 0.0, "refresh_every": 5}
    for sampling in ("gap", "permutation"):
        solver = SDCA(lam=0.01, sampling=sampling, callback=seen.append, **settings)
        solver.solve(problem)
    for at in seen:
        assert at.dual <= without_weights
        assert at.gap == pytest.approx(at.primal - at.dual)


@pytest.mark.parametrize("longest", [1, 2, 4])
def test_starts_whose_scores_are_vast_keep_marginals_and_duals(longest):
    # scores of 1e16 have rounding errors of 1, also in logarithms of probabilities
    rng = np.random.default_rng(0)
    lengths = np.maximum(rng.integers(0, longest + 1, 8), 1)
    X = rng.integers(-2, 3, (lengths.sum(), 1)) * 1e5
    problem = ChainProblem(X, rng.integers(3, size=len(X)), lengths=lengths)
    seen = []
    solver = SDCA(lam=1e-6, max_passes=20, refresh_every=1, callback=seen.append)
    found = solver.solve(problem, start=np.zeros(problem.num_weights))
    engine = DualAscentEngine(problem, 1e-6)
    engine.load(found.state)
    dual = Point(engine, problem, 1e-6).dual()
    np.testing.assert_allclose(found.dual, dual, rtol=1e-6, atol=1e-9 * found.primal)
    duals = np.array([at.dual for at in seen])
    assert (duals <= np.log(3) * len(X) / 8).all()
    assert (np.diff(duals) >= -1e-9 * abs(duals[:-1])).all()
    nodes, edges = engine.blocks
    np.testing.assert_allclose(nodes.sum(1), 1, atol=1e-12)
    for at, pairs in zip(problem.offsets, edges, strict=False):
        for t, pair in enumerate(pairs):
            np.testing.assert_allclose(pair.sum(1), nodes[at + t], atol=1e-12)
            np.testing.assert_allclose(pair.sum(0), nodes[at + t + 1], atol=1e-12)


@pytest.mark.parametrize("sampling", ["gap", "uniform", "permutation"])
def test_duals_never_fall_where_lambda_is_small(sampling):
    # rounded features, whose steps on the whole segment overshoot
    X = [[-17, -1], [3, -8], [-7, -2], [7, -5], [18, 3], [-1, 14]]
    X += [[6, 4], [-3, 18], [8, -2], [-16, 4], [-11, -17], [-3, 3]]
    y = [0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    problem = ChainProblem(np.array(X) / 10, y, lengths=[4, 4, 4])
    duals = []

    def watch(at):
        duals.append(at.dual)

    settings = {"max_passes": 500, "tol": 0.0, "refresh_every": 1}
    SDCA(lam=1e-4, sampling=sampling, callback=watch, **settings).solve(problem)
    assert (np.diff(duals) >= -1e-12).all()


# --- weights of examples, starts, limits ---


def test_weights_are_repeated_examples():
    X, y = random_rows(np.random.default_rng(0), 7, 4).toarray(), [0, 1, 2, 1, 0, 2, 2]
    parts = [slice(0, 3), slice(3, 4), slice(4, 7)]
    counts = [2, 0, 3]
    weighed = ChainProblem(X, y, lengths=[3, 1, 3], loss_scale=[1.2, 0, 1.8])
    chosen = [part for part, k in zip(parts, counts, strict=True) for _ in range(k)]
    repeated = ChainProblem.from_sequences(
        [X[part] for part in chosen], [np.array(y[part]) for part in chosen]
    )
    few, many = (
        SDCA(lam=LAM, tol=1e-12).solve(problem) for problem in (weighed, repeated)
    )
    np.testing.assert_allclose(few.primal, many.primal, atol=1e-11)
    np.testing.assert_allclose(few.w, many.w, atol=1e-5)


@pytest.mark.parametrize("all_pairs", [True, False])
def test_a_start_at_another_lambda_keeps_the_dual_variables(all_pairs):
    problem = drawn(8, lengths=(3, 4, 2, 0, 5), all_pairs=all_pairs)
    first = SDCA(lam=0.1, tol=1e-9).solve(problem)
    for lam in (0.1, 0.05, 0.4):
        solver = SDCA(lam=lam, tol=1e-9)
        engine = DualAscentEngine(problem, lam)
        engine.load_duals(first.state)
        np.testing.assert_allclose(engine.w, first.w * 0.1 / lam, atol=1e-12)
        warm = solver.solve(problem, start=first)
        cold = solver.solve(problem)
        np.testing.assert_allclose(warm.primal, cold.primal, atol=2e-9)
    assert SDCA(lam=0.1, tol=1e-8).solve(problem, start=first).passes == 1


def test_a_start_at_weights_has_their_dual_value():
    problem = drawn(8)
    best = LBFGS(lam=LAM, tol=1e-3).solve(problem)
    engine = DualAscentEngine(problem, LAM)
    engine.set_duals_at(problem.padded_weights(best.w))
    np.testing.assert_allclose(engine.compute_certificate()[1], best.dual, rtol=1e-12)
    found = SDCA(lam=LAM, tol=1e-9).solve(problem, start=best)
    assert found.passes < SDCA(lam=LAM, tol=1e-9).solve(problem).passes
    # weights of other examples are a start, too
    other = SDCA(lam=LAM, tol=1e-9).solve(drawn(9))
    again = SDCA(lam=LAM, tol=1e-9).solve(problem, start=other)
    np.testing.assert_allclose(again.primal, found.primal, atol=2e-9)


def test_certificates_hold_and_come_early():
    problem = published()
    best = minimum(problem, LAM).primal
    seen = []
    found = SDCA(lam=LAM, tol=Tolerance(1e-4), callback=seen.append).solve(problem)
    assert found.converged
    assert found.gap <= 1e-4 * found.dual
    assert found.passes < 25
    assert len(seen) < found.passes / 2
    for at in found.history:
        assert at.dual - 1e-12 <= best <= at.primal + 1e-12
        np.testing.assert_allclose(at.primal - at.dual, at.gap, atol=1e-12)
    duals = [at.dual for at in found.history]
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(duals))
    assert found.oracle_calls <= 12 * (found.passes + len(seen))


def test_features_in_float32_give_the_same():
    exact = PROBLEMS["chain"]
    rows = exact.values.astype(np.float32), exact.indices, exact.indptr
    from scipy.sparse import csr_matrix

    single = ChainProblem(csr_matrix(rows), exact.labels, exact.offsets, num_labels=3)
    assert single.values.dtype == np.float32
    values = [SDCA(lam=LAM, tol=1e-9).solve(p).primal for p in (exact, single)]
    np.testing.assert_allclose(*values, atol=1e-6)


def test_wrong_problems_and_starts_are_refused(monkeypatch):
    problem = drawn(0)
    with pytest.raises(TypeError, match=r"problem: expected a ChainProblem.*LBFGS"):
        SDCA(lam=1).solve(as_callbacks(random_chain(0)))
    with pytest.raises(ValueError, match="start: expected finite weights"):
        SDCA(lam=1).solve(problem, start=np.full(problem.num_weights, np.nan))
    with pytest.raises(ValueError, match=r"start: expected \(\d+,\) weights"):
        SDCA(lam=1).solve(problem, start=np.zeros(3))
    with pytest.raises(ValueError, match="features: expected words whose"):
        SDCA(lam=1e-300).solve(ChainProblem([[1e160], [1.0]], [0, 1], lengths=[2]))
    found = SDCA(lam=1, max_passes=1).solve(problem)
    damaged = {**found.state, "edges": np.zeros(3)}
    with pytest.raises(ValueError, match="state: expected marginals of"):
        SDCA(lam=1).solve(problem, start=dataclasses.replace(found, state=damaged))
    monkeypatch.setattr(arrays, "available_bytes", lambda: 1000)
    with pytest.raises(MemoryError, match=r"54 pairs of labels.*solver='lbfgs'"):
        SDCA(lam=1).solve(problem)


# --- the estimator ---


def tagged(seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, 4)) for T in (3, 0, 1, 6, 4, 5)]
    y = [[("O", "B", "I")[j] for j in (x + rng.normal(size=x.shape)).argmax(1) % 3]
         for x in X]  # fmt: skip
    return X, y


@pytest.mark.parametrize("all_pairs", [True, False])
def test_taggers_are_those_of_lbfgs(all_pairs):
    X, y = tagged()
    given = {
        "class_weight": {"O": 1, "B": 3, "I": 2},
        "all_pairs": all_pairs,
        "tol": 1e-10,
        "max_passes": 5000,
    }
    taggers = [
        ChainCRF(solver=solver, **given).fit(X, y, sample_weight=[1, 1, 0, 2, 1, 3])
        for solver in ("lbfgs", "sdca")
    ]
    np.testing.assert_allclose(taggers[1].primal_, taggers[0].primal_, rtol=2e-10)
    np.testing.assert_allclose(taggers[1].weights_, taggers[0].weights_, atol=1e-4)
    assert taggers[1].gap_ <= 1e-10 * taggers[1].dual_
    probabilities = [tagger.predict_marginals(X)[3] for tagger in taggers]
    np.testing.assert_allclose(*probabilities, atol=1e-4)


def test_a_warm_start_along_C_and_on_other_data():
    X, y = tagged()
    options = {"solver": "sdca", "tol": 1e-8, "max_passes": 2000}
    cold = ChainCRF(C=3.0, **options).fit(X, y)
    warm = ChainCRF(C=2.5, warm_start=True, **options).fit(X, y)
    warm.set_params(C=3.0).fit(X, y)
    assert warm.n_passes_ < cold.n_passes_
    np.testing.assert_allclose(warm.primal_, cold.primal_, rtol=1e-7)
    # other sentences: the weights are the start
    warm.fit(X[2:], y[2:])
    few = ChainCRF(C=3.0, **options).fit(X[2:], y[2:])
    np.testing.assert_allclose(warm.primal_, few.primal_, rtol=1e-7)
    # after a fit of another solver, too
    warm.set_params(solver="lbfgs").fit(X, y).set_params(solver="sdca").fit(X, y)
    np.testing.assert_allclose(warm.primal_, cold.primal_, rtol=1e-7)


def test_equal_seeds_give_equal_bits():
    X, y = tagged()
    options = {"solver": "sdca", "tol": 0.0, "max_passes": 7}
    with pytest.warns(UserWarning, match="max_passes"):
        first, second, other = (
            ChainCRF(random_state=seed, **options).fit(X, y) for seed in (1, 1, 2)
        )
    np.testing.assert_array_equal(first.weights_, second.weights_)
    assert (first.weights_ != other.weights_).any()
