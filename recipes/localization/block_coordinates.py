"""Block-coordinate Frank-Wolfe on the linear localiser, an epoch at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from localization.images import Images
from smoothsp.linear.problems import CallbackProblem
from smoothsp.linear.solvers import BCFW
from smoothsp.models.box_scores import LinearScores

Weights = np.ndarray


class BlockCoordinates:
    """``smoothsp.linear``'s BCFW, which keeps its weights in the linear scores.

    Line search and weighted average, as in the paper; each epoch ends with certificates
    of iterate and average, which ask about all images twice more.
    """

    def __init__(
        self, scores: LinearScores, images: Images, decay: float, seed: int
    ) -> None:
        self.scores, self.images = scores, images
        self.settings = {"lam": decay, "seed": seed, "tol": 0.0, "averaging": True}
        self.settings |= {"sampling": "uniform"}
        size = sum(p.numel() for p in scores.parameters())
        self.problem = CallbackProblem(len(images), size, self._worst)
        self.kept: dict[str, np.ndarray] | None = None
        self.passes = 0
        self.oracle_calls = {"iterate": 0.0, "full": 0.0}
        self._update: Callable[[], Any] = lambda: None

    def _worst(self, i: int, w: Weights) -> tuple[Weights, float, int]:
        """The most violating box: what it costs plus its score."""
        self._update()
        looks, where = self.images.inputs(i)
        scores, label = self.scores, self.images.labels[i]
        scaled = (looks.float() * scores.scale.cpu()).flatten(1)
        places = (where - scores.where_mean.cpu()) * scores.where_scale.cpu()
        features = torch.cat([places, scaled], 1)
        cost = self.images.cost(i)[0]
        worst = int((cost + features @ torch.from_numpy(w).float()).argmax())
        psi = (features[label] - features[worst]).double().numpy()
        return psi, float(cost[worst]), worst

    def epoch(self, update: Callable[[], Any] = lambda: None) -> None:
        """As many steps as images; ``update`` is called after each question."""
        self._update = update
        self.passes += 1
        solver = BCFW(**self.settings, max_passes=self.passes)
        # state before the last certificate: the next epoch goes on from there
        solution = solver.solve(self.problem, resume=self.kept)
        if solution.passes < self.passes:
            raise KeyboardInterrupt
        self.kept = solution.state
        steps = self.passes * len(self.images)
        self.oracle_calls = {"iterate": float(steps)}
        self.oracle_calls |= {"full": float(solution.oracle_calls - steps)}
        self._show(solution.w)

    @torch.no_grad()
    def _show(self, w: Weights) -> None:
        flat = torch.from_numpy(w).float()
        for own in (self.scores.where, self.scores.weight):
            part, flat = flat[: own.numel()], flat[own.numel() :]
            own.copy_(part.view(own.shape))

    def state_dict(self) -> dict[str, Any]:
        kept = self.kept or {}
        arrays = {k: v for k, v in kept.items() if v.dtype.kind not in "US"}
        words = {k: str(v) for k, v in kept.items() if v.dtype.kind in "US"}
        return {
            "arrays": {name: torch.from_numpy(x) for name, x in arrays.items()},
            "words": words,
            "passes": self.passes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        arrays = {name: x.numpy() for name, x in state["arrays"].items()}
        words = {name: np.array(x) for name, x in state["words"].items()}
        # the solver checks the rest
        solved = int(arrays.get("passes", 0))
        if state["passes"] != solved:
            raise ValueError(
                f"passes: expected {solved}, as in the arrays, got {state['passes']!r}"
            )
        self.passes, self.kept = solved, {**arrays, **words} or None
