"""Graphs that are given where a transform of torch.func is under way."""

import pytest
import torch
from torch.func import grad, vmap
from torch.testing import assert_close

from smoothsp.oracles import Lattice, UndirectedSpanningTree, Warping

INDEX = [[0, 1], [1, 2], [0, 2]]


@pytest.mark.parametrize("kind", [Lattice, UndirectedSpanningTree])
def test_an_index_may_be_made_within_a_transform(kind):
    scores = torch.tensor([[0.5, -1.0, 2.0]]).double()

    def total(x):
        return kind(x, torch.tensor(INDEX)).log_partition().sum()

    expected = kind(scores, torch.tensor(INDEX)).marginals()
    assert_close(grad(total)(scores), expected)
    assert_close(vmap(grad(total))(scores[None])[0], expected)


def test_a_circuit_may_be_built_within_a_transform():
    # of a size that no other test has
    match = torch.zeros(1, 11, 13).double()
    found = grad(lambda x: Warping(x).log_partition().sum())(match)
    assert_close(found, Warping(match).marginals())


@pytest.mark.parametrize("kind", [Lattice, UndirectedSpanningTree])
def test_an_index_that_is_mapped_over_is_refused(kind):
    many = torch.tensor([INDEX, INDEX])
    with pytest.raises(TypeError, match="index: "):
        vmap(lambda i: kind(torch.zeros(1, 3), i).log_partition())(many)
