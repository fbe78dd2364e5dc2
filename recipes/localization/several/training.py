"""Training on several objects in an image: the rounds are those of one object."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from localization import training
from localization.several import losses
from localization.several.detection import DECODERS, Found, precision
from localization.several.images import Images

DECODER = {
    "hinge": "best sets",
    "cliques": "best sets",
    "softmax": "non-maximum suppression",
}


class _Seen:
    """A loss that a round calls, and its values since."""

    smoothing = exact = None

    def __init__(self, loss: losses.Loss, mu: float | None) -> None:
        known = {"cliques": losses.of_cliques, "softmax": losses.softmax}
        self.loss = known.get(loss, partial(losses.hinge, mu=mu))
        self.values: list[float] = []

    def __call__(self, *question: Any) -> Tensor:
        found = self.loss(*question)
        self.values.append(float(found.detach()))
        return found


class Run(training.Run):
    """As that of one object, with losses and numbers of sets of objects."""

    ranked_by = ("val_map50", "val_map")

    def __init__(
        self,
        network: nn.Module,
        train: Images,
        settings: training.Settings,
        seed: int,
        loss: losses.Loss,
    ) -> None:
        super().__init__(network, train, settings, seed)
        self.loss, self.decoder = loss, DECODER[loss]
        self.hinge = _Seen(loss, settings.mu)

    def _question(
        self, model: nn.Module, images: Images, number: int
    ) -> tuple[Tensor, losses.OfImage, Tensor]:
        """Scores of the windows that the loss considers, and which they are."""
        image = losses.OfImage(images, number)
        windows = image.considered(self.scores(model, images, number), self.loss)
        maps, boxes, where = images.inputs(number)
        inputs = (maps, boxes[windows], where[windows])
        return model(*(x.to(self.device) for x in inputs)).cpu(), image, windows

    @torch.no_grad()
    def scores(self, model: nn.Module, images: Images, number: int) -> Tensor:
        """Those of all windows, ``(window, class)``."""
        found = model(*(x.to(self.device) for x in images.inputs(number))).cpu()
        # structures take numbers below this
        if not bool((found.abs() < training.LARGEST).all()):
            raise self._diverged("scores")
        return found

    def found(self, images: Images, decoder: str | None = None) -> list[Found]:
        """What a way of decoding, the run's own by default, finds in each image."""
        decode = DECODERS[decoder or self.decoder]
        self.shown.eval()
        return [
            decode(self.scores(self.shown, images, n), images.windows(n).boxes)
            for n in range(len(images))
        ]

    def evaluate(self, images: Images, decoder: str | None = None) -> dict[str, float]:
        """Mean average precisions."""
        objects = [images.objects(n) for n in range(len(images))]
        difficult = [images.difficult(n) for n in range(len(images))]
        found = self.found(images, decoder)
        return precision(found, objects, images.classes, difficult)

    def rank(self, row: dict[str, Any]) -> tuple[float, ...]:
        return row["val_map50"], row["val_map"]

    def said(self, row: dict[str, Any]) -> str:
        loss = "" if row["loss"] is None else f"loss {row['loss']:.4f}  "
        return (
            f"{loss}val mAP {100 * row['val_map50']:5.1f} % at IoU .5"
            f"  {100 * row['val_map']:5.1f} % to .95"
        )

    def row(self) -> dict[str, Any]:
        seen, self.hinge.values = self.hinge.values, []
        loss = sum(seen) / len(seen) if seen else None
        if loss is not None and not math.isfinite(loss):
            raise self._diverged("loss")
        return {
            "round": len(self.history),
            "passes": self.passes,
            "seconds": self.seconds,
            "loss": loss,
        }
