"""Structures that answer questions exactly: max, top-K, sum."""

from smoothsp.oracles._structure import Structure, SumStructure, TopKStructure
from smoothsp.oracles.chain import Chain
from smoothsp.oracles.multiclass import Multiclass
from smoothsp.oracles.projective import ProjectiveDependencies

__all__ = [
    "Chain",
    "Multiclass",
    "ProjectiveDependencies",
    "Structure",
    "SumStructure",
    "TopKStructure",
]
