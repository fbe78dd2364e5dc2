"""Binary graphs: larger ones, the certificate, max-marginals, what is refused."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch.testing import assert_close

from smoothsp.oracles import BinaryGraph
from tests.truth.circuits.cases import SEARCHES, draw

KINDS = [kind for kind in SEARCHES if kind.startswith("binary")]


def image(seed, B, H, W, strength=1.0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(B, H, W, 2, generator=generator, dtype=torch.float64)
    down = torch.rand(B, H - 1, W, generator=generator, dtype=torch.float64)
    right = torch.rand(B, H, W - 1, generator=generator, dtype=torch.float64)
    return nodes, strength * down, strength * right


@pytest.mark.parametrize("strength", [0.3, 1.5, 10.0])
def test_the_flow_proves_the_labelling_of_images(strength):
    for B, H, W in ((2, 30, 17), (1, 1, 40), (1, 64, 64)):
        built = BinaryGraph.grid(*image(H, B, H, W, strength))
        value, y = built.decode()
        assert_close(built.bound(), value, rtol=1e-12, atol=1e-9)
        assert_close(built.score(y), value)
        assert y.shape == (B, H, W)


@pytest.mark.parametrize("strength", [0.3, 1.0, 3.0])
def test_the_flow_proves_the_labelling_where_few_nodes_prefer_a_label(strength):
    # trees are deep there, and large parts of them are cut off at a time
    for H, W in ((1, 400), (20, 60), (48, 48)):
        nodes, down, right = image(W, 1, H, W)
        nodes[:, :, 1:-1] = 0
        nodes[:, :, 0, 1] += 2
        nodes[:, :, -1, 0] += 2
        built = BinaryGraph.grid(strength * nodes, down, right)
        value, _ = built.decode()
        assert_close(built.bound(), value, rtol=1e-12, atol=1e-9)


def test_whole_numbers_have_the_flow_of_scipy():
    generator = torch.Generator().manual_seed(3)
    V, E = 60, 200
    index = torch.stack([torch.randperm(V, generator=generator)[:2] for _ in range(E)])
    nodes = torch.randint(-9, 9, (1, V, 2), generator=generator).double()
    weights = torch.randint(0, 7, (1, E), generator=generator).double()
    value, _ = BinaryGraph(nodes, weights, index).decode()
    # what agreement scores, and the better label of each node, less the cut
    gain = (nodes[0, :, 1] - nodes[0, :, 0]).long().numpy()
    room = np.zeros((V + 2, V + 2), np.int32)
    for (i, j), w in zip(index.tolist(), weights[0].long().tolist(), strict=True):
        room[i, j] += w
        room[j, i] += w
    room[V, :V], room[:V, V + 1] = np.maximum(gain, 0), np.maximum(-gain, 0)
    flow = maximum_flow(csr_array(room), V, V + 1).flow_value
    total = nodes[0].amax(1).sum() + weights.sum() - flow
    assert value.item() == total


@pytest.mark.parametrize("kind", KINDS)
def test_max_marginals_are_those_of_the_enumeration(kind):
    for seed in range(6):
        case = draw(kind, seed)
        found = case.structure().max_marginals()
        for b, outputs in enumerate(case.outputs):
            expected = torch.full_like(found[b], -torch.inf)
            for y, score in zip(outputs, case.scores(b), strict=True):
                for name, (_, *place) in case.parts(b, y):
                    if name == "nodes":
                        at = tuple(place)
                        expected[at] = torch.maximum(expected[at], score)
            assert_close(found[b], expected, rtol=1e-9, atol=1e-9)


def test_ties_do_not_make_an_output_of_parts_of_several():
    # 00 and 11 score 1, and every max-marginal is 1
    built = BinaryGraph(torch.zeros(1, 2, 2), torch.ones(1, 1), torch.tensor([[0, 1]]))
    assert (built.max_marginals() == 1).all()
    assert built.decode()[0].item() == 1
    values, ys, _ = built.decode_topk(4)
    assert values.tolist() == [[1, 1, 0, 0]]
    assert {tuple(y) for y in ys[0, :2].tolist()} == {(0, 0), (1, 1)}


def test_labels_may_have_to_agree():
    nodes = torch.tensor([[[0.0, 3.0], [1.0, 0.0], [0.0, -5.0]]])
    index = torch.tensor([[0, 1], [1, 2]])
    edges = torch.zeros(1, 2, 2, 2)
    for barred, expected, value, count in (
        ([(0, 0, 1), (0, 1, 0)], [1, 1, 0], 3.0, 4),
        ([(0, 1, 0), (1, 1, 0)], [0, 0, 0], 1.0, 4),
        ([(0, 0, 1)], [1, 0, 0], 4.0, 6),
    ):
        edges.zero_()
        for place in barred:
            edges[0][place] = -torch.inf
        built = BinaryGraph(nodes, edges, index)
        assert built.decode()[1].tolist() == [expected]
        assert built.decode()[0].item() == built.bound().item() == value
        values, ys, valid = built.decode_topk(8)
        assert values[0, 0] == value
        assert (built.score(ys[:, valid[0]]) > -torch.inf).all()
        assert int(valid.sum()) == count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_rounding_takes_from_an_edge_counts_as_nothing(dtype):
    generator = torch.Generator().manual_seed(0)
    index = torch.combinations(torch.arange(5))
    every = torch.cartesian_prod(*[torch.arange(2)] * 5)
    # sums of a number for each node, in steps of 0.1
    shapes = (20, len(index), 2, 1), (20, len(index), 1, 2)
    first, second = (torch.randint(-30, 30, x, generator=generator) for x in shapes)
    edges = ((first + second).double() / 10).to(dtype)
    nodes = torch.randn(20, 5, 2, generator=generator, dtype=dtype)
    built = BinaryGraph(nodes, edges, index)
    value, bound = built.decode()[0].double(), built.bound().double()
    most = built.score(every.expand(20, -1, -1)).double().amax(1)
    unit = torch.finfo(dtype).eps
    assert (bound >= most - unit * most.abs() - 1e-14).all()
    assert_close(value, most, rtol=0, atol=50 * unit)
    assert_close(bound, value, rtol=0, atol=50 * unit)
    edges[3, 4, 0, 0] -= 1000 * unit
    with pytest.raises(
        ValueError, match=r"edges: .* at row 3, edge 4; for other edges use Tree"
    ):
        BinaryGraph(nodes, edges, index)


def test_no_row_has_edges_of_its_own():
    index = torch.tensor([[[0, 1], [1, 2]], [[0, 2], [1, 2]]])
    graph = BinaryGraph(torch.zeros(2, 3, 2), torch.zeros(2, 2), index)
    none = graph.select(torch.zeros(0, dtype=torch.int64))
    assert none.index.shape == (0, 2, 2)
    assert none.score(torch.zeros(0, 3, dtype=torch.int64)).shape == (0,)


def test_no_node_and_no_edge():
    for B, V, E in ((0, 2, 1), (2, 0, 0), (2, 3, 0), (1, 1, 0)):
        nodes = torch.randn(B, V, 2, requires_grad=True)
        index = torch.zeros(E, 2, dtype=torch.int64)
        index[:, 1] = 1
        built = BinaryGraph(nodes, torch.zeros(B, E), index)
        value, y = built.decode()
        assert_close(value, nodes.amax(2).sum(1) if V else value)
        assert y.shape == (B, V)
        values, _, valid = built.decode_topk(3)
        assert valid.tolist() == [[i < 2**V for i in range(3)]] * B
        assert built.max_marginals().shape == nodes.shape
        (values[valid].sum() + value.sum()).backward()
    grid = BinaryGraph.grid(
        torch.zeros(2, 0, 3, 2), torch.zeros(2, 0, 3), torch.zeros(2, 0, 2)
    )
    assert grid.decode()[1].shape == (2, 0, 3)


TWO = torch.tensor([[0, 1]])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BinaryGraph(torch.zeros(1, 2), torch.zeros(1, 1), TWO), "nodes: "),
        (lambda: BinaryGraph(torch.zeros(1, 2, 2), torch.zeros(1, 2), TWO), "edges: "),
        (
            lambda: BinaryGraph(torch.zeros(1, 2, 2), torch.zeros(1, 1), TWO[0]),
            "index: ",
        ),
        (
            lambda: BinaryGraph(torch.zeros(1, 2, 2), torch.zeros(1, 1), TWO + 1),
            "index: ",
        ),
        (
            lambda: BinaryGraph(torch.zeros(1, 2, 2), torch.zeros(1, 1), TWO * 0),
            "index: expected two different nodes, got one twice at edge 0",
        ),
        (
            lambda: BinaryGraph(
                torch.zeros(2, 2, 2), torch.tensor([[1.0], [-0.5]]), TWO
            ),
            r"edges: expected \[0, 0\] \+ \[1, 1\] .* -1 and 0 at row 1, edge 0",
        ),
        (
            lambda: BinaryGraph(
                torch.zeros(1, 2, 2), torch.tensor([[[[-torch.inf, 0], [0, 0]]]]), TWO
            ),
            r"edges: expected .* row 0, edge 0.* forbid labels with nodes",
        ),
        (
            lambda: BinaryGraph(torch.zeros(1, 2, 2), torch.zeros(1, 1), TWO).score(
                torch.tensor([[0, 2]])
            ),
            r"y: expected labels 0 or 1, got \[0, 2\] at row 0",
        ),
        (
            lambda: BinaryGraph.grid(
                torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 2), torch.zeros(1, 2, 1)
            ),
            "down: ",
        ),
        (
            lambda: BinaryGraph.grid(
                torch.zeros(1, 2, 2, 2),
                torch.full((1, 1, 2), np.nan),
                torch.ones(1, 2, 1),
            ),
            "down, right: ",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
