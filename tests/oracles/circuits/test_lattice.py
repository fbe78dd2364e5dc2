"""What lattices have besides the laws: another library's paths, sizes, messages."""

import networkx as nx
import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Circuit, Lattice


def drawn_graph(nodes, arcs, seed):
    """Arcs from lower to higher numbers; each node is entered, and left."""
    generator = torch.Generator().manual_seed(seed)
    enter = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)], 1)
    pairs = torch.randint(nodes, (4 * arcs, 2), generator=generator).sort(1).values
    pairs = pairs[pairs[:, 0] < pairs[:, 1]][: arcs - len(enter)]
    index = torch.cat([enter, pairs])
    return index[torch.randperm(len(index), generator=generator)]


def log_sum(arcs, index):
    """The textbook recurrence, node by node."""
    nodes = int(index.max()) + 1
    reach = [arcs.new_zeros(())]
    for v in range(1, nodes):
        into = (index[:, 1] == v).nonzero().flatten().tolist()
        ways = [reach[int(index[e, 0])] + arcs[e] for e in into]
        reach.append(torch.stack(ways).logsumexp(0))
    return reach[-1]


def test_paths_of_large_graphs_are_those_of_others():
    graphs = [drawn_graph(40, 300, seed) for seed in range(3)]
    graphs[1] = graphs[1][graphs[1].amax(1) < 30]
    E = max(map(len, graphs))
    index = torch.full((3, E, 2), -1)
    for b, graph in enumerate(graphs):
        index[b, : len(graph)] = graph
    generator = torch.Generator().manual_seed(0)
    arcs = torch.randn(3, E, generator=generator).double().requires_grad_()
    built = Lattice(arcs, index)
    value, y = built.decode()
    total = built.log_partition()
    for b, graph in enumerate(graphs):
        # of arcs between the same nodes the best; the ends are worth so much that no
        # longest path lacks them
        known = nx.DiGraph()
        for e in arcs[b, : len(graph)].argsort().tolist():
            known.add_edge(*graph[e].tolist(), weight=arcs[b, e].item())
        last = int(graph.max())
        known.add_weighted_edges_from([(-1, 0, 2.0**20), (last, last + 1, 2.0**20)])
        assert_close(nx.dag_longest_path_length(known) - 2.0**21, value[b].item())
        assert int((y[b] == 1).sum()) and (y[b, len(graph) :] == -1).all()
    expected = torch.stack(
        [log_sum(arcs[b, : len(g)], g) for b, g in enumerate(graphs)]
    )
    assert_close(total, expected)
    found, slope = (torch.autograd.grad(x.sum(), arcs)[0] for x in (total, expected))
    assert_close(found, slope)


def test_nodes_that_no_arc_joins_change_nothing():
    arcs = torch.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]])
    few = Lattice(arcs, torch.tensor([[0, 1], [1, 2], [0, 2]]))
    far = torch.tensor([[0, 7], [7, 10**6], [0, 10**6]])
    many = Lattice(arcs, far)
    assert_close(few.log_partition(), many.log_partition(), rtol=0, atol=0)
    assert many.index.tolist() == [far.tolist()] * 2
    one = many.select(torch.tensor([1]))
    assert one.score(one.decode()[1]).tolist() == [4.0]
    with pytest.raises(ValueError, match="arcs: row 0 has no feasible output"):
        Lattice(arcs, torch.tensor([[1, 7], [7, 9], [1, 9]]))


def test_changing_the_index_afterwards_changes_nothing():
    index = torch.tensor([[0, 1], [0, 1]])
    built = Lattice(torch.tensor([[1.0, 2.0]]), index)
    index.fill_(-1)
    assert built.score(built.decode()[1]).tolist() == [2.0]


@pytest.mark.parametrize("size", [(0, 2), (2, 0), (0, 0)])
def test_sizes_of_0(size):
    B, E = size
    built = Lattice(torch.zeros(size), torch.tensor([[0, 1]]).expand(E, 2))
    assert built.decode()[1].shape == size
    assert built.log_count().shape == (B,)
    assert built.lengths.tolist() == [E] * B


zeros = torch.zeros(2, 2)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([[0, 1]], "index: "),
        ([[0, 1], [1, 1]], r"index: expected arcs .* got \[1, 1\] at row 0, arc 1"),
        ([[0, 1], [2, 1]], r"index: expected arcs .* got \[2, 1\] at row 0, arc 1"),
        ([[0, 9], [3, 2]], r"index: expected arcs .* got \[3, 2\] at row 0, arc 1"),
        ([[0, 1], [-1, 1]], "index: "),
        ([[-1, -1], [0, 1]], "index: expected no arcs after a -1, got some at row 0"),
        ([[1, 2], [1, 2]], "arcs: row 0 has no feasible output"),
    ],
)
def test_what_is_no_lattice_is_refused(index, message):
    with pytest.raises(ValueError, match=message):
        Lattice(zeros, torch.tensor(index))


def test_definitions_of_different_lengths_are_checked():
    c = Circuit()
    leaf, item = c.leaves(3), c.chart(2)
    with pytest.raises(ValueError, match="define_each: "):
        c.define_each(item, [1, 1], leaf[:1], leaf[:1])
    with pytest.raises(ValueError, match="define_each: "):
        c.define_each(item, [1, 1], [item[1], leaf[0]], [leaf[0], leaf[0]])
    with pytest.raises(ValueError, match="define: "):
        c.define_each(leaf[1:2], [1], leaf[:1], leaf[:1])
