"""All labellings of graphs that rows have of their own."""

import torch

from smoothsp.oracles import BinaryGraph
from tests.truth.searches import binary_graph


def case(generator):
    index = torch.tensor([[[0, 1], [1, 2]], [[2, 0], [2, 0]], [[1, 2], [0, 2]]])
    return binary_graph.case(generator, BinaryGraph, (3,), index, {"index": index})
