"""Optimizers for finite sums with the interface of ``torch.optim``."""

from smoothsp.optim import schedules
from smoothsp.optim.casimir import CasimirSVRG
from smoothsp.optim.linearised import Linearised
from smoothsp.optim.planning import Plan, plan
from smoothsp.optim.prox_linear import ProxLinear
from smoothsp.optim.smoothness import estimate_smoothness
from smoothsp.optim.subgradient import SubgradientLR, weighted_average
from smoothsp.optim.svrg import SVRG
from smoothsp.optim.trace import Trace

__all__ = [
    "SVRG",
    "CasimirSVRG",
    "Linearised",
    "Plan",
    "ProxLinear",
    "SubgradientLR",
    "Trace",
    "estimate_smoothness",
    "plan",
    "schedules",
    "weighted_average",
]
