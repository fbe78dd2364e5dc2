"""Images as graphs: superpixels, neighbours, features, costs; and as a problem."""

import itertools

import numpy as np
import pytest
import torch

from segmentation import drawn, linear, training, words
from segmentation.folder import Example
from segmentation.network import Segmenter
from segmentation.picture_sets import PictureSet
from segmentation.scores import baselines, iou, scores
from segmentation.superpixels import (
    EDGE_FEATURES,
    NODE_FEATURES,
    Graph,
    graph_of,
    neighbours,
    slic,
)
from smoothsp.linear.solvers import BCFW


@pytest.fixture(scope="module")
def image():
    return drawn.draw(np.random.default_rng(0))


@pytest.fixture(scope="module")
def graph(image):
    return graph_of(image[0], words.learn([image[0]]), 60)


def tiny(seed, V, E):
    """A graph of few superpixels with features like real ones."""
    chance = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(V), 2)))
    index = pairs[np.sort(chance.choice(len(pairs), E, replace=False))]
    nodes = chance.random((V, NODE_FEATURES)) * (chance.random((V, 1)) < 0.9)
    edges = chance.random((E, EDGE_FEATURES)).astype(np.float32)
    pixels = np.repeat(np.arange(V), 2)[None]
    return Graph(pixels, np.full(V, 2), nodes.astype(np.float32), index, edges)


def test_superpixels_are_connected_pieces_of_the_image(image):
    pixels = slic(image[0], 60)
    assert pixels.shape == image[1].shape
    assert set(np.unique(pixels)) == set(range(pixels.max() + 1))
    assert 30 < pixels.max() < 120


def test_neighbours_touch_and_borders_are_counted():
    pixels = np.array([[0, 0, 1], [2, 2, 1], [2, 2, 1]])
    index, borders = neighbours(pixels)
    assert index.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert borders.tolist() == [1, 2, 2]
    index, borders = neighbours(np.zeros((3, 3), int))
    assert index.shape == (0, 2) and borders.shape == (0,)


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


def test_an_image_of_one_colour_is_a_graph_all_the_same():
    flat = np.full((20, 30, 3), 90, np.uint8)
    graph = graph_of(flat, words.learn([flat]), 1)
    assert np.isfinite(graph.nodes).all() and np.isfinite(graph.edges).all()
    assert graph.paint(np.ones(len(graph.sizes), int)).all()
    own = PictureSet([Example("flat", flat, flat[..., 0] > 100)], [graph], [])
    assert linear.labels_of(np.zeros(linear.WEIGHTS), [graph])[0].shape == (
        len(graph.sizes),
    )
    assert len(own) == 1


def test_costs_are_shares_of_pixels_or_of_classes(graph, image):
    gold = graph.gold(image[1])
    assert set(gold) == {0, 1}
    for kind in ("balanced", "pixels"):
        np.testing.assert_allclose(graph.costs(gold, kind).sum(), 1)
    balanced = graph.costs(gold, "balanced")
    np.testing.assert_allclose(balanced[gold == 1].sum(), 0.5)
    # of a class that is not there nothing can be wrong
    np.testing.assert_allclose(graph.costs(0 * gold, "balanced").sum(), 1)
    best = graph.paint(gold) > 0
    for v in range(len(gold)):
        turned = gold.copy()
        turned[v] = 1 - turned[v]
        assert ((graph.paint(turned) > 0) == image[1]).sum() <= (best == image[1]).sum()


def test_the_problem_is_the_hinge_of_all_labellings():
    chance = np.random.default_rng(0)
    # of different sizes: the smaller ones are padded
    graphs = [tiny(0, 4, 4), tiny(1, 5, 7), tiny(2, 3, 2)]
    golds = [chance.integers(2, size=len(g.sizes)) for g in graphs]
    problem = linear.problem_of(graphs, golds)
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
    for graph, value, y in zip(graphs, best, linear.labels_of(w, graphs), strict=True):
        np.testing.assert_allclose(score(graph, y), value)


def test_weights_of_neighbours_stay_at_least_0_and_gaps_are_certified():
    chance = np.random.default_rng(0)
    graphs = [tiny(k, 4, 5) for k in range(6)]
    golds = [chance.integers(2, size=4) for _ in graphs]
    problem = linear.problem_of(graphs, golds)
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


def test_scores_of_masks():
    one = np.array([[True, True], [False, False]])
    other = np.array([[True, False], [True, False]])
    none = np.zeros((2, 2), bool)
    assert iou(one, other) == 1 / 3 and iou(one, one) == 1
    assert iou(none, none) == 1 and iou(one, none) == 0
    examples = [Example("a", none, one), Example("b", none, other)]
    assert scores(examples, [one, none]) == {"iou": 0.5, "accuracy": 0.75}
    known = baselines(examples, examples)
    assert not known["all background"][0].any()
    assert known["mean mask"][0].shape == (2, 2)


def test_the_ellipse_lies_in_the_middle():
    mask = np.zeros((60, 80), bool)
    known = baselines([Example("a", mask, mask)], [Example("a", mask, mask)])
    ellipse = known["ellipse"][0]
    assert ellipse[30, 40] and not ellipse[0, 0]
    assert (ellipse == ellipse[::-1, ::-1]).all() and 0.2 < ellipse.mean() < 0.3


def test_images_of_a_batch_do_not_depend_on_each_other(graph, image):
    torch.manual_seed(0)
    network = Segmenter("small")
    small = tiny(3, 6, 8)
    pictures = [image[0], np.zeros((1, 12, 3), np.uint8)]
    both = training.pictures(pictures, [graph, small], 128)
    alone = training.pictures(pictures[:1], [graph], 128)
    V = len(graph.sizes)
    with torch.no_grad():
        first = network(both.images, both.pixels, both.most)[0, :V]
        found = network(alone.images, alone.pixels, alone.most)[0, :V]
    torch.testing.assert_close(first, found, rtol=1e-4, atol=1e-4)
