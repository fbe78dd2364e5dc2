"""Training of the localiser: one round of an optimizer after another."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from localization import baselines
from localization.block_coordinates import BlockCoordinates
from localization.images import Images
from smoothsp.divergence import GROWTH
from smoothsp.losses import L2, StructuralHinge
from smoothsp.metrics import average_precision
from smoothsp.models.resuming import restore
from smoothsp.optim import (
    SVRG,
    CasimirSVRG,
    ProxLinear,
    SubgradientLR,
    weighted_average,
)
from smoothsp.oracles import Multiclass

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
# with an update after each image
STEPPED = ("sgd", "sgd-sqrt", "sgd-inv", "adam")
# structures take scores below this
LARGEST = 2.0**40
WarmStart = Literal["prox-center", "extrapolation", "prev-iterate", "restart"]


class Diverged(ValueError):
    """The scores are no numbers that a structure takes any more, or the loss grows."""


@contextmanager
def alarms() -> Iterator[None]:
    """Say of an optimizer's alarm that it is one."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, Diverged):
            raise error.__cause__ from None
        if "lower lr" not in str(error):
            raise
        raise Diverged(str(error)) from error


@dataclass(frozen=True)
class Settings:
    """What an optimizer needs to know; what it does not use is None."""

    method: Method | Literal["adam"]
    decay: float
    averaged: bool
    lr: float | None = None
    t_0: int | None = None
    smoothness: float | None = None
    mu: float | None = None
    k: int | Literal["exact"] = 10
    warm_start: WarmStart = "prox-center"
    inner_epochs: int = 5


def rank(row: dict[str, Any]) -> tuple[float, float, float]:
    """By which a round is better than another: what validation images say, first."""
    return row["val_corloc"], row["val_iou"], -row["objective"]


class Run:
    """A network, and all that training changes."""

    # of each row of the history
    ranked_by: tuple[str, ...] = ("val_corloc", "val_iou", "objective")

    def __init__(
        self, network: nn.Module, train: Images, settings: Settings, seed: int
    ) -> None:
        self.network, self.train, self.settings = network, train, settings
        self.seed = seed
        self.device = next(network.parameters()).device
        smoothing = L2(settings.mu, settings.k) if settings.mu else None
        self.hinge, self.max_hinge = StructuralHinge(smoothing), StructuralHinge()
        self.optimizer = self._optimizer(smoothing)
        self.scheduler = self.average = None
        if settings.method in STEPPED:
            kind = {"sgd-sqrt": "inverse-sqrt", "sgd-inv": "inverse"}
            default = "step" if settings.t_0 else "constant"
            kind = kind.get(settings.method, default)
            self.scheduler = SubgradientLR(self.optimizer, kind, settings.t_0)
        if settings.averaged:
            self.average = AveragedModel(network, avg_fn=weighted_average)
        self.calls = dict.fromkeys(("iterate", "snapshot", "full", "objective"), 0.0)
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}
        self.seconds = 0.0
        self.exact: float | None = None
        self.mu: float | None = None

    def _optimizer(
        self, smoothing: L2 | None
    ) -> torch.optim.Optimizer | BlockCoordinates:
        s = self.settings
        if s.method == "bcfw":
            return BlockCoordinates(self.network, self.train, s.decay, self.seed)
        params = self.network.parameters()
        shared = {
            "weight_decay": s.decay,
            "generator": torch.Generator().manual_seed(self.seed),
        }
        if s.method == "svrg":
            # no step is halved: what a rate leads to is what is studied
            return SVRG(params, s.lr, backtrack=None, **shared)
        if s.method == "casimir-const":
            return CasimirSVRG.const(
                params,
                smoothness=s.smoothness,
                num_batches=len(self.train),
                smoothing=smoothing,
                warm_start=s.warm_start,
                backtrack=None,
                **shared,
            )
        if s.method == "casimir-adapt":
            return CasimirSVRG.adapt(
                params,
                s.lr,
                smoothing=smoothing,
                warm_start=s.warm_start,
                backtrack=None,
                **shared,
            )
        if s.method == "prox-linear":
            return ProxLinear(
                self.network,
                s.lr,
                smoothness=s.smoothness,
                smoothing=smoothing,
                epochs=s.inner_epochs,
                inner=partial(
                    CasimirSVRG.const,
                    num_batches=len(self.train),
                    warm_start=s.warm_start,
                    backtrack=None,
                    generator=shared["generator"],
                ),
                **shared,
            )
        kind = torch.optim.Adam if s.method == "adam" else torch.optim.SGD
        return kind(params, s.lr, weight_decay=s.decay)

    @property
    def shown(self) -> nn.Module:
        """The network that is evaluated: with averaged weights where they are."""
        return self.average.module if self.average else self.network

    @property
    def passes(self) -> float:
        """Calls of an inference oracle per image, without those of full gradients."""
        return (self.calls["iterate"] + self.calls["snapshot"]) / len(self.train)

    @property
    def images_a_round(self) -> int:
        """How many times an image is looked at."""
        per_image = {"prox-linear": 3 * self.settings.inner_epochs + 2}
        per_image |= {"svrg": 3, "casimir-const": 3, "casimir-adapt": 3}
        per_image |= {"bcfw": 3}
        return len(self.train) * per_image.get(self.settings.method, 1)

    def round(self) -> None:
        """An epoch; with prox-linear, an outer iteration."""
        number = len(self.history)
        generator = torch.Generator().manual_seed(1000 * self.seed + number)
        start, numbers = self._clock(), list(range(len(self.train)))
        model, exact = self.network, []
        self.mu = self.hinge.smoothing.mu if self.hinge.smoothing else None
        self.network.train()
        with tqdm(
            total=self.images_a_round, desc=f"round {number}", leave=False, disable=None
        ) as bar:

            def ask(hinge: StructuralHinge, image: int) -> Tensor:
                bar.update()
                return hinge(*self._question(model, self.train, image))

            def closure(image: int) -> Tensor:
                loss = ask(self.hinge, image)
                loss.backward()
                if self.hinge.exact is not None:
                    exact.append(self.hinge.exact)
                return loss

            if isinstance(self.optimizer, ProxLinear):
                model = self.optimizer.model
                with alarms():
                    self.optimizer.step(closure, numbers, partial(ask, self.max_hinge))
            elif isinstance(self.optimizer, SVRG):
                with alarms():
                    self.optimizer.epoch(closure, numbers)
            elif isinstance(self.optimizer, BlockCoordinates):
                self.optimizer.epoch(bar.update)
            else:
                for image in torch.randint(
                    len(numbers), (len(numbers),), generator=generator
                ).tolist():
                    self.optimizer.zero_grad()
                    closure(image)
                    self.optimizer.step()
                    self.scheduler.step()
                    if self.average:
                        self.average.update_parameters(self.network)
                self.calls["iterate"] += len(numbers)
        self.calls.update(getattr(self.optimizer, "oracle_calls", {}))
        self.seconds += self._clock() - start
        self.exact = float(torch.cat(exact).double().mean()) if exact else None

    def _clock(self) -> float:
        """Seconds; of computing, where one thread does it all and others may wait."""
        if self.device.type == "cpu" and torch.get_num_threads() == 1:
            return time.process_time()
        return time.perf_counter()

    def _question(
        self, model: nn.Module, images: Images, number: int
    ) -> tuple[Multiclass, Tensor, None, Tensor]:
        """Structure, label, weight and costs of one image."""
        inputs = (x.to(self.device).float() for x in images.inputs(number))
        label = torch.tensor([images.labels[number]], device=self.device)
        cost = images.cost(number).to(self.device)
        scores = model(*inputs)[None]
        if not bool((scores.abs() < LARGEST).all()):
            raise self._diverged("scores")
        return Multiclass(scores), label, None, cost

    def _diverged(self, what: str) -> Diverged:
        s = self.settings
        if s.smoothness:
            step = f"--smoothness {s.smoothness:g}: raise it"
        else:
            step = f"--lr {s.lr:g}: lower it" if s.lr else "no step size"
        return Diverged(
            f"{s.method}: the {what} diverged in round {len(self.history)} with {step}"
        )

    @torch.no_grad()
    def objective(self) -> float:
        """Mean hinge without smoothing, and the regulariser, of what is shown."""
        self.shown.eval()
        total = 0.0
        for number in range(len(self.train)):
            question = self._question(self.shown, self.train, number)
            total += float(self.max_hinge(*question))
        squares = sum(float(p.square().sum()) for p in self.shown.parameters())
        return total / len(self.train) + self.settings.decay / 2 * squares

    @torch.no_grad()
    def predict(self, images: Images, count: int = 1) -> list[tuple[Tensor, Tensor]]:
        """Scores and numbers of the ``count`` best candidates of each image."""
        self.shown.eval()
        found = []
        for number in range(len(images)):
            structure = self._question(self.shown, images, number)[0]
            values, ys, valid = structure.decode_topk(count)
            found.append((values[valid].cpu(), ys[valid].cpu()))
        return found

    def evaluate(self, images: Images) -> dict[str, float]:
        """CorLoc, and average precision with the scores as confidence."""
        found = self.predict(images)
        iou = [
            float(overlap[int(ys[0])])
            for overlap, (_, ys) in zip(images.overlaps, found, strict=True)
        ]
        confidence = [float(values[0]) for values, _ in found]
        return baselines.hits(iou) | {"ap": average_precision(iou, confidence)}

    def rank(self, row: dict[str, Any]) -> tuple[float, ...]:
        """By which a round is better than another."""
        return rank(row)

    def said(self, row: dict[str, Any]) -> str:
        """The numbers of a round, for its line."""
        return (
            f"objective {row['objective']:.4f}  val CorLoc"
            f" {100 * row['val_corloc']:5.1f} %  AP {100 * row['val_ap']:5.1f} %"
        )

    def row(self) -> dict[str, Any]:
        """What a round took, and the objective after it."""
        found = {
            "round": len(self.history),
            "passes": self.passes,
            "oracle_calls": int(self.calls["iterate"] + self.calls["snapshot"]),
            "further_calls": int(self.calls["full"] + self.calls["objective"]),
            "seconds": self.seconds,
            "objective": self.objective(),
            "exact": self.exact,
            "mu": self.mu,
        }
        value = found["objective"]
        first = self.history[0]["objective"] if self.history else math.inf
        if 0 < GROWTH * first < value or not math.isfinite(value):
            raise self._diverged("objective")
        return found

    def record(self, val: Images) -> dict[str, Any]:
        """Evaluate, remember the weights if they are the best so far."""
        row = self.row()
        row |= {f"val_{name}": x for name, x in self.evaluate(val).items()}
        if all(self.rank(row) > self.rank(other) for other in self.history):
            state = self.shown.state_dict()
            self.best = {name: value.clone() for name, value in state.items()}
        self.history.append(row)
        return row

    def state(self) -> dict[str, Any]:
        state = {name: part.state_dict() for name, part in self._parts().items()}
        return state | {
            "history": self.history,
            "best": self.best,
            "calls": self.calls,
            "seconds": self.seconds,
        }

    def load(self, state: dict[str, Any]) -> None:
        numbers = {"calls": self.calls, "seconds": self.seconds}
        self.history, self.best = restore(
            state, self._parts(), self.shown, self.ranked_by, numbers
        )
        self.calls, self.seconds = state["calls"], state["seconds"]

    def _parts(self) -> dict[str, Any]:
        """What has a state of its own."""
        parts = {"network": self.network, "optimizer": self.optimizer}
        parts |= {"scheduler": self.scheduler, "average": self.average}
        return {name: part for name, part in parts.items() if part}
