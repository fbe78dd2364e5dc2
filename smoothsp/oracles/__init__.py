"""Structures that answer questions exactly: max, top-K, sum."""

from smoothsp.oracles._structure import Structure, SumStructure, TopKStructure
from smoothsp.oracles.chain import Chain
from smoothsp.oracles.multiclass import Multiclass

__all__ = ["Chain", "Multiclass", "Structure", "SumStructure", "TopKStructure"]
