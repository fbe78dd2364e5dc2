"""Losses of a structure and its gold output."""

from smoothsp.losses import functional
from smoothsp.losses.candidates import MinimumRisk, RankingHinge
from smoothsp.losses.constants import Constants, smoothness_constants
from smoothsp.losses.decisions import ImplicitMLE, Interpolation, NegativeIdentity
from smoothsp.losses.modules import CRFLoss, StructuralHinge, StructuredPerceptron
from smoothsp.losses.partial import LatentHinge, MarginalLikelihood
from smoothsp.losses.perturbed import Perturbed, PerturbedLoss
from smoothsp.losses.pools import (
    ListwiseRanking,
    NoiseContrastive,
    PairwiseRanking,
    SolutionPool,
)
from smoothsp.losses.smoothing import L2, Entropy
from smoothsp.losses.sparse_map import SparseMAPLoss
from smoothsp.losses.spo_plus import SPOPlus, regret
from smoothsp.oracles.sparse_map import SparseMAP

__all__ = [
    "L2",
    "CRFLoss",
    "Constants",
    "Entropy",
    "ImplicitMLE",
    "Interpolation",
    "LatentHinge",
    "ListwiseRanking",
    "MarginalLikelihood",
    "MinimumRisk",
    "NegativeIdentity",
    "NoiseContrastive",
    "PairwiseRanking",
    "Perturbed",
    "PerturbedLoss",
    "RankingHinge",
    "SPOPlus",
    "SolutionPool",
    "SparseMAP",
    "SparseMAPLoss",
    "StructuralHinge",
    "StructuredPerceptron",
    "functional",
    "regret",
    "smoothness_constants",
]
