"""Features of superpixels for a linear model, and the model as a problem."""

import itertools

import numpy as np
import pytest

from segmentation import examples, features, linear, synthetic
from segmentation.features import EDGE_FEATURES, NODE_FEATURES, Features
from segmentation.report import baselines
from smoothsp.data import MaskedImage
from smoothsp.linear.solvers import BCFW
from smoothsp.models.superpixels import build_graph


def features_of(image, count):
    graph = build_graph(image, count)
    return features.graph_with_features(
        image, graph, features.fit_visual_words([image])
    )


@pytest.fixture(scope="module")
def graph():
    return features_of(synthetic.draw(np.random.default_rng(0))[0], 60)


def tiny(seed, V, E):
    """A graph of few superpixels with features like real ones."""
    chance = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(V), 2)))
    index = pairs[np.sort(chance.choice(len(pairs), E, replace=False))]
    nodes = chance.random((V, NODE_FEATURES)) * (chance.random((V, 1)) < 0.9)
    edges = chance.random((E, EDGE_FEATURES)).astype(np.float32)
    pixels = np.repeat(np.arange(V), 2)[None]
    return Features(pixels, np.full(V, 2), index, edges, nodes.astype(np.float32))


def test_features_are_roots_of_shares_and_contrasts(graph):
    V, E = len(graph.sizes), len(graph.index)
    assert graph.nodes.shape == (V, NODE_FEATURES)
    assert graph.edges.shape == (E, EDGE_FEATURES)
    assert (graph.nodes[:, 0] == 1).all() and (graph.edges[:, 0] == 1).all()
    assert (graph.edges >= 0).all() and (graph.edges <= 1).all()
    # own histograms of colours, textures, places; each of length 1
    starts = [1, 1 + 3 * 32, 1 + 3 * (32 + 64)]
    for start, size in zip(starts, (32, 64, 25), strict=True):
        squares = (graph.nodes[:, start : start + size].astype(float) ** 2).sum(1)
        np.testing.assert_allclose(squares, 1, rtol=1e-5)


def test_neighbours_histograms_are_those_of_the_neighbours(graph):
    v = 0
    near = [b if a == v else a for a, b in graph.index if v in (a, b)]
    own = graph.nodes[:, 1:33].astype(float) ** 2 * graph.sizes[:, None]
    mean = own[near].sum(0) / graph.sizes[near].sum()
    np.testing.assert_allclose(graph.nodes[v, 33:65] ** 2, mean, atol=1e-6)


def test_an_image_of_one_colour_is_a_graph():
    graph = features_of(np.full((20, 30, 3), 90, np.uint8), 1)
    assert np.isfinite(graph.nodes).all() and np.isfinite(graph.edges).all()
    (labels,) = linear.predict_labels(np.zeros(linear.WEIGHTS), [graph])
    assert labels.shape == graph.sizes.shape


def test_the_problem_is_the_hinge_of_all_labellings():
    chance = np.random.default_rng(0)
    # of different sizes: the smaller ones are padded
    graphs = [tiny(0, 4, 4), tiny(1, 5, 7), tiny(2, 3, 2)]
    golds = [chance.integers(2, size=len(g.sizes)) for g in graphs]
    problem = linear.build_problem(graphs, golds)
    w = chance.normal(size=linear.WEIGHTS)
    w[NODE_FEATURES:] = abs(w[NODE_FEATURES:])
    U, P = w[:NODE_FEATURES], w[NODE_FEATURES:]

    def score(graph, y):
        agree = y[graph.index[:, 0]] == y[graph.index[:, 1]]
        return (2 * y - 1) @ (graph.nodes @ U) + agree @ (graph.edges @ P)

    hinges, best = [], []
    for graph, gold in zip(graphs, golds, strict=True):
        every = [np.array(y) for y in itertools.product((0, 1), repeat=len(gold))]
        costs = [graph.costs(gold, "balanced") @ (y != gold) for y in every]
        values = np.array([score(graph, y) for y in every])
        hinges.append(max(values + costs) - score(graph, gold))
        best.append(max(values))
    np.testing.assert_allclose(problem.hinges(w), hinges, rtol=1e-9)
    for graph, value, y in zip(
        graphs, best, linear.predict_labels(w, graphs), strict=True
    ):
        np.testing.assert_allclose(score(graph, y), value)


def test_weights_of_neighbours_stay_at_least_0_and_gaps_are_certified():
    chance = np.random.default_rng(0)
    graphs = [tiny(k, 4, 5) for k in range(6)]
    golds = [chance.integers(2, size=4) for _ in graphs]
    problem = linear.build_problem(graphs, golds)
    found = linear.solve(problem, 1.0, 1e-2, 0, True)
    assert found.converged and found.gap <= 1e-2
    assert (found.w[NODE_FEATURES:] >= 0).all()
    np.testing.assert_allclose(found.primal, problem.primal(found.w, 1.0), rtol=1e-9)
    alone = linear.solve(problem, 1.0, 1e-2, 0, False)
    assert not alone.w[NODE_FEATURES:].any()
    assert alone.dual <= alone.primal and found.dual <= alone.primal
    # without bounds a graph cut cannot be asked
    with pytest.raises(ValueError, match=r"edges: expected"):
        BCFW(lam=1e-3, tol=1e-6).solve(problem)


def test_baselines_look_at_no_image():
    mask = np.zeros((60, 80), bool)
    mask[:30] = True
    known = baselines([MaskedImage(mask, mask)], [MaskedImage(mask, mask)])
    assert not known["all background"][0].any()
    np.testing.assert_equal(known["mean mask"][0], mask)
    ellipse = known["ellipse"][0]
    assert ellipse[30, 40] and not ellipse[0, 0]
    assert (ellipse == ellipse[::-1, ::-1]).all() and 0.2 < ellipse.mean() < 0.3


def test_every_part_has_an_image_where_there_are_three():
    for count in range(3, 40):
        parts = examples.split(list(range(count)))
        assert min(map(len, parts.values())) >= 1
        assert [*itertools.chain(*parts.values())] == list(range(count))
