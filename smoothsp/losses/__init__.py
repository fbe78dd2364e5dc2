"""Losses: formulas over a structure and its gold output."""

from smoothsp.losses import functional
from smoothsp.losses.constants import Constants, smoothness_constants
from smoothsp.losses.modules import CRFLoss, StructuralHinge, StructuredPerceptron
from smoothsp.losses.partial import LatentHinge, MarginalLikelihood
from smoothsp.losses.smoothing import L2, Entropy

__all__ = [
    "L2",
    "CRFLoss",
    "Constants",
    "Entropy",
    "LatentHinge",
    "MarginalLikelihood",
    "StructuralHinge",
    "StructuredPerceptron",
    "functional",
    "smoothness_constants",
]
