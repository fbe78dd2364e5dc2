"""Optimizers of the paper: their numbers, and how a trainer takes them."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import nn
from torch.optim import Optimizer

from smoothsp.lightning import Snapshots
from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import SVRG, CasimirSVRG, schedules, weighted_average

Method = Literal[
    "sgd",
    "sgd-sqrt",
    "sgd-inv",
    "svrg",
    "casimir-const",
    "casimir-adapt",
    "prox-linear",
    "bcfw",
]
WarmStart = Literal["prox-center", "extrapolation", "prev-iterate", "restart"]
# of an epoch, how often an image is asked for, without full gradients
PASSES = {"svrg": 2, "casimir-const": 2, "casimir-adapt": 2}
# their steps are epochs, which no trainer of steps on batches makes
EPOCH_METHODS = ("prox-linear", "bcfw")
# the paper's two, and about that of the convolutions' own training
DECAY = {"linear": 10.0, "nonlinear": 1.0, "convolutions": 0.1}
# by what is trained and optimizer; a folder of images may want others
TUNED_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {
    ("linear", "sgd"): {"lr": 2**-11, "t_0": 2000},
    ("linear", "sgd-sqrt"): {"lr": 2**-8},
    ("linear", "sgd-inv"): {"lr": 2**-4},
    ("linear", "svrg"): {"lr": 2**-11, "mu": 1.0},
    ("linear", "casimir-const"): {"smoothness": 2048.0, "mu": 1.0},
    ("linear", "casimir-adapt"): {"lr": 2**-11, "mu": 10.0},
    ("linear", "prox-linear"): {"lr": 10.0, "smoothness": 2048.0, "mu": 1.0},
    ("linear", "bcfw"): {},
    ("nonlinear", "sgd"): {"lr": 2**-8},
    ("nonlinear", "sgd-sqrt"): {"lr": 2**-6},
    ("nonlinear", "sgd-inv"): {"lr": 2**-2},
    ("nonlinear", "svrg"): {"lr": 2**-8, "mu": 1.0},
    ("nonlinear", "casimir-const"): {"smoothness": 256.0, "mu": 1.0},
    ("nonlinear", "casimir-adapt"): {"lr": 2**-8, "mu": 10.0},
    ("nonlinear", "prox-linear"): {"lr": 10.0, "smoothness": 256.0, "mu": 1.0},
    ("convolutions", "sgd"): {"lr": 2**-12},
    ("convolutions", "sgd-sqrt"): {"lr": 2**-10},
    ("convolutions", "sgd-inv"): {"lr": 2**-10},
    ("convolutions", "svrg"): {"lr": 2**-12, "mu": 1.0},
    ("convolutions", "casimir-const"): {"smoothness": 4096.0, "mu": 1.0},
    ("convolutions", "casimir-adapt"): {"lr": 2**-12, "mu": 10.0},
    ("convolutions", "prox-linear"): {"lr": 1.0, "smoothness": 4096.0, "mu": 1.0},
}
Numbers = dict[str, Any]


class Rates(Callback):
    """Step sizes of subgradient methods; without a rule they stay."""

    def __init__(self, lr: float, rule: str, t_0: int) -> None:
        self.lr, self.rule, self.t_0 = lr, rule, t_0

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        factor = schedules.subgradient_rate(
            self.rule, trainer.global_step + 1, self.t_0
        )
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = self.lr * factor


def build_hinge(numbers: Numbers) -> StructuralHinge:
    """The hinge that a method minimises."""
    if "mu" not in numbers:
        return StructuralHinge()
    return StructuralHinge(L2(numbers["mu"], numbers["k"]))


def make_optimizer(
    method: Method, numbers: Numbers, hinge: StructuralHinge
) -> Callable[[nn.Module, int], Optimizer]:
    """Constructor of an optimizer, of the network and the number of images."""

    def make(network: nn.Module, images: int) -> Optimizer:
        params, decay = network.parameters(), numbers["decay"] / images
        if method.startswith("sgd"):
            return torch.optim.SGD(params, numbers["lr"], weight_decay=decay)
        # no step is halved: the effect of a rate is studied
        shared = {"weight_decay": decay, "backtrack": None}
        if method == "svrg":
            return SVRG(params, numbers["lr"], **shared)
        shared |= {"smoothing": hinge.smoothing, "warm_start": numbers["warm_start"]}
        if method == "casimir-adapt":
            return CasimirSVRG.adapt(params, numbers["lr"], **shared)
        make_const = partial(CasimirSVRG.const, num_batches=images, **shared)
        return make_const(params, smoothness=numbers["smoothness"])

    return make


def build_callbacks(method: Method, numbers: Numbers, convex: bool) -> list[Callback]:
    """Callbacks that the trainer needs for a method."""
    if not method.startswith("sgd"):
        return [Snapshots()]
    rule = {"sgd-sqrt": "inverse-sqrt", "sgd-inv": "inverse"}.get(method, "constant")
    t_0 = numbers.get("t_0")
    rates = Rates(numbers["lr"], "step" if t_0 else rule, t_0 or 1)
    return [rates, *([WeightAveraging(avg_fn=weighted_average)] if convex else [])]
