"""Structures that answer questions exactly: max, top-K, sum."""

from smoothsp.oracles.chain import Chain
from smoothsp.oracles.multiclass import Multiclass
from smoothsp.oracles.projective import ProjectiveDependencies
from smoothsp.oracles.protocols import Structure, Summed, SumStructure, TopKStructure

__all__ = [
    "Chain",
    "Multiclass",
    "ProjectiveDependencies",
    "Structure",
    "SumStructure",
    "Summed",
    "TopKStructure",
]
