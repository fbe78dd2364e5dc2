"""Fixed chains that the tests of this folder share, and how to ask them anything."""

import math

import pytest
import torch

from smoothsp.oracles import Chain
from tests.instances.strategies import structure
from tests.truth.chain_cases import ChainCase

HOLES = torch.tensor([[1, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
Y = torch.tensor([[0, 2, -100, 1], [-100, -1, 1, 1], [9, 2, 0, 0], [5, 5, 5, 5]])

QUESTIONS = [
    "score",
    "log_prob",
    "decode",
    "decode_topk",
    "log_partition",
    "marginals",
    "edge_marginals",
    "entropy",
]
any_transitions = pytest.mark.parametrize("per_edge", [False, True])


def random_case(per_edge: bool, forbid: bool = False) -> ChainCase:
    """Four rows with a hole, left padding, one label, none; no two outputs tie."""
    generator = torch.Generator().manual_seed(7)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    B, T, S = 4, 4, 3
    edges = randn(B, T - 1, S, S) if per_edge else randn(S, S)
    if forbid:
        edges[..., 1, 2] = -math.inf
    return ChainCase(randn(B, T, S), edges, randn(S), randn(S), mask=HOLES)


def large_case(
    B: int, T: int, S: int, seed: int = 0, per_edge: bool = False, scale: float = 1.0
) -> ChainCase:
    """Ragged rows of many labels, drawn in float64."""
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> torch.Tensor:
        return scale * torch.randn(shape, generator=generator, dtype=torch.float64)

    lengths = torch.randint(0, T + 1, (B,), generator=generator)
    lengths[0] = T
    edges = randn(B, T - 1, S, S) if per_edge else randn(S, S)
    return ChainCase(randn(B, T, S), edges, randn(S), randn(S), lengths=lengths)


def answers(question: str, built: Chain) -> torch.Tensor:
    """Return the numbers that answer a question; of outputs, those of ``Y``."""
    if question == "score":
        return built.score(Y)
    if question == "log_prob":
        return built.log_prob(Y)
    if question == "decode":
        return built.decode()[0]
    if question == "decode_topk":
        values, _, valid = built.decode_topk(4)
        return torch.where(valid, values, 0.0)
    return getattr(built, question)()


def gradients(case: ChainCase, question: str = "log_partition") -> list[torch.Tensor]:
    """Return the gradient of the sum of the answers in every potential."""
    leaves = case.leaves()
    answers(question, structure(leaves)).sum().backward()
    return list(leaves.gradients().values())
