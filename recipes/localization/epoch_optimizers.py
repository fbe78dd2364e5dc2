"""Prox-linear and block-coordinate Frank-Wolfe, whose steps are whole epochs.

No trainer of steps on batches makes these, and ``--resume`` does not continue them.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localization.optimizers import build_hinge, training_options
from localization.settings import Config, optimizer_values
from smoothsp.linear.problems import CallbackProblem
from smoothsp.linear.solvers import BCFW
from smoothsp.losses import StructuralHinge
from smoothsp.models.box_images import SingleObjectImages
from smoothsp.models.localiser import Localiser
from smoothsp.models.localiser_training import Options, prepare
from smoothsp.optim import CasimirSVRG, ProxLinear
from smoothsp.run_folder import MODEL, held


def train(config: Config, lists: dict[str, Any]) -> Localiser:
    with held(config.out, config.out / MODEL):
        prepared = prepare(
            lists["train"], lists["val"], Options(**training_options(config))
        )
        localiser, images = prepared.localiser, prepared.images
        network, numbers = images.network, optimizer_values(config)
        decay = numbers["decay"] / len(images)
        make_step = _bcfw_step if config.optimizer == "bcfw" else _prox_linear_step
        step = make_step(images, numbers, decay, config.seed)
        history: list[dict[str, Any]] = []
        best: dict[str, Tensor] = {}
        for epoch in range(1, config.epochs + 1):
            began = time.perf_counter()
            network.train()
            step()
            network.eval()
            row = {"epoch": epoch, **prepared.dev.evaluate()}
            row["objective"] = images.objective(decay)
            row["seconds"] = time.perf_counter() - began
            if row["iou"] > max((past["iou"] for past in history), default=-1.0):
                best = {name: x.clone() for name, x in network.state_dict().items()}
            history.append(row)
            print("  ".join(f"{name} {value:.4g}" for name, value in row.items()))
        network.load_state_dict(best)
        localiser.about = {"settings": {"seed": config.seed, **numbers}}
        localiser.about |= {"history": history}
        localiser.save(config.out / MODEL)
        return localiser


def _prox_linear_step(
    images: SingleObjectImages, numbers: dict[str, Any], decay: float, seed: int
) -> Callable[[], Any]:
    """An outer iteration."""
    hinge, generator = build_hinge(numbers), torch.Generator().manual_seed(seed)
    inner_options = {"backtrack": None, "generator": generator}
    optimizer = ProxLinear(
        images.network,
        numbers["lr"],
        decay,
        smoothness=numbers["smoothness"],
        smoothing=hinge.smoothing,
        epochs=numbers["inner_epochs"],
        inner=partial(
            CasimirSVRG.const,
            num_batches=len(images),
            warm_start=numbers["warm_start"],
            **inner_options,
        ),
        generator=generator,
    )

    def closure(number: int) -> Tensor:
        loss = images.loss(number, hinge, optimizer.model)
        loss.backward()
        return loss

    def objective(number: int) -> Tensor:
        return images.loss(number, StructuralHinge(), optimizer.model)

    return lambda: optimizer.step(closure, list(range(len(images))), objective)


def _bcfw_step(
    images: SingleObjectImages, numbers: dict[str, Any], decay: float, seed: int
) -> Callable[[], None]:
    """As many steps of ``smoothsp.linear``'s BCFW as images, with averaged weights."""
    scores = images.network

    def most_violating(i: int, w: np.ndarray) -> tuple[np.ndarray, float, int]:
        """The most violating box: its cost plus its score."""
        appearances, raw_positions = images.features(i)
        scaled = (appearances * scores.scale.cpu()).flatten(1)
        positions = (raw_positions - scores.where_mean.cpu()) * scores.where_scale.cpu()
        features, cost = torch.cat([positions, scaled], 1), images.cost(i)[0]
        number = int((cost + features @ torch.from_numpy(w).float()).argmax())
        psi = features[images.labels[i]] - features[number]
        return psi.double().numpy(), float(cost[number]), number

    size = sum(p.numel() for p in scores.parameters())
    problem = CallbackProblem(len(images), size, most_violating)
    solver_options = {"lam": decay, "seed": seed, "tol": 0.0, "averaging": True}
    state: dict[str, Any] = {"passes": 0, "kept": None}

    @torch.no_grad()
    def step() -> None:
        state["passes"] += 1
        solver = BCFW(**solver_options, sampling="uniform", max_passes=state["passes"])
        # state before the last certificate: the next epoch goes on from there
        solution = solver.solve(problem, resume=state["kept"])
        if solution.passes < state["passes"]:
            raise KeyboardInterrupt
        state["kept"] = solution.state
        flat = torch.from_numpy(solution.w).float()
        scores.where.copy_(flat[: scores.where.numel()])
        scores.weight.copy_(flat[scores.where.numel() :].view(scores.weight.shape))

    return step
