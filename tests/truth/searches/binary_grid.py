"""All labellings of a small image."""

import torch

from smoothsp.oracles import BinaryGraph
from tests.truth.searches import binary_graph

H, W = 2, 3
DOWN = [[0, 3], [1, 4], [2, 5]]
RIGHT = [[0, 1], [1, 2], [3, 4], [4, 5]]


def build(nodes, edges):
    down, right = edges.split([len(DOWN), len(RIGHT)], 1)
    return BinaryGraph.grid(
        nodes,
        down.reshape(-1, H - 1, W, 2, 2),
        right.reshape(-1, H, W - 1, 2, 2),
    )


def case(generator):
    index = torch.tensor(DOWN + RIGHT)
    return binary_graph.case(generator, build, (H, W), index)
