"""Structures that answer questions exactly: max, top-K, sum."""

from smoothsp.oracles.chain import Chain
from smoothsp.oracles.multiclass import Multiclass
from smoothsp.oracles.projective import ProjectiveDependencies
from smoothsp.oracles.protocols import Structure, Summed, SumStructure, TopKStructure
from smoothsp.oracles.semi_markov import SemiMarkov

__all__ = [
    "Chain",
    "Multiclass",
    "ProjectiveDependencies",
    "SemiMarkov",
    "Structure",
    "SumStructure",
    "Summed",
    "TopKStructure",
]
