"""Optimizers of the paper: their numbers, and how a trainer takes them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import nn
from torch.optim import Optimizer

from localization import synthetic
from localization.settings import Config, Method, optimizer_values
from smoothsp.lightning import Snapshots
from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import SVRG, CasimirSVRG, schedules, weighted_average

# of an epoch, how often an image is asked for, without full gradients
PASSES = {"svrg": 2, "casimir-const": 2, "casimir-adapt": 2}
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


def training_options(config: Config) -> dict[str, Any]:
    """Options of ``Localiser.train``."""
    names = ("objects", "backbone", "weights", "side", "cache", "workers")
    names += ("epochs", "seed")
    options = {name: getattr(config, name) for name in names}
    if config.objects == "several":
        loss_options = {"loss": config.loss, "mu": config.mu}
        return options | loss_options | {"rate": config.lr, "decay": config.decay}
    names = ("scores", "proposals", "max_boxes", "finetune")
    options |= {name: getattr(config, name) for name in names}
    numbers = optimizer_values(config)
    hinge = build_hinge(numbers)
    return options | {
        "kind": config.kind or synthetic.CLASS,
        "decay": numbers["decay"],
        "loss": hinge,
        "optimizer": make_optimizer(config.optimizer, numbers, hinge),
        "objective": True,
    }
