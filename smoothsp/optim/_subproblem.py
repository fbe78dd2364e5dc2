"""Convex subproblem of the prox-linear method, for any inner solver."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from smoothsp.optim import _ranks
from smoothsp.optim._batches import Size, batch_weight, sample_batches
from smoothsp.optim._evaluation import (
    Closure,
    evaluate,
    full_gradient,
    joint_norm,
    require_gradient,
)
from smoothsp.optim.linearised import Linearised
from smoothsp.optim.svrg import SVRG

Groups = list[dict[str, Any]]


def groups_with_indices(
    linear: Linearised, groups: Groups
) -> list[tuple[dict[str, Any], list[int]]]:
    """Groups with the indices of their parameters in the linearised model."""
    index_of = {id(p): index for index, p in enumerate(linear.linearisation_point)}
    return [
        (group, [index_of[id(p)] for p in group["params"] if id(p) in index_of])
        for group in groups
    ]


def centred_groups(linear: Linearised, groups: Groups) -> Groups:
    """Groups of the variables ``u = w - c`` with decay ``lambda + 1/eta``.

    Starts the linearised model at ``u_0 = w - c = w lambda / (lambda + 1/eta)``.
    """
    start = [torch.zeros_like(p) for p in linear.linearisation_point]
    centred = []
    for group, indices in groups_with_indices(linear, groups):
        weight_decay, prox_weight = group["weight_decay"], 1 / group["lr"]
        for index in indices:
            if weight_decay:
                start[index] = linear.linearisation_point[index].detach() * (
                    weight_decay / (weight_decay + prox_weight)
                )
        variables = [linear.variables[index] for index in indices]
        if variables:
            centred.append(
                {"params": variables, "weight_decay": weight_decay + prox_weight}
            )
    linear.restart(start if any(group["weight_decay"] for group in groups) else None)
    return centred


@dataclass
class Subproblem:
    """Convex subproblem with its closure, batches and oracle calls."""

    name: str
    groups: Groups
    closure: Closure
    batches: Iterable[Any]
    size: Size
    generator: torch.Generator
    calls: dict[str, float] = field(default_factory=dict)

    @property
    def variables(self) -> list[Tensor]:
        """Variables u of all groups."""
        return [u for group in self.groups for u in group["params"]]

    def solve(self, inner: Optimizer, epochs: int, tolerance: float | None) -> int:
        """Run the inner solver; return the number of epochs."""
        for done in range(1, epochs + 1):
            self._epoch(inner)
            if tolerance is not None and self._is_solved(tolerance):
                return done
        return epochs

    def _epoch(self, inner: Optimizer) -> None:
        if isinstance(inner, SVRG):
            inner.snapshot(self.closure, self.batches, size=self.size)
        for batch in sample_batches(self.batches, None, self.generator):
            self._step(inner, batch)
        if isinstance(inner, SVRG):
            inner.end_epoch()
            for kind, examples in inner.oracle_calls.items():
                self.calls[kind] = self.calls.get(kind, 0) + examples
                # Counted once: the solver counts on in the next epoch.
                inner.oracle_calls[kind] = 0.0

    def _step(self, inner: Optimizer, batch: Any) -> None:
        examples = batch_weight(batch, self.size)

        def averaged_loss() -> float:
            loss = evaluate(self.name, lambda: self.closure(batch), self.variables)
            require_gradient(self.name, self.variables, loss)
            _ranks.average_gradients(self.variables)
            if not isinstance(inner, SVRG):
                self.calls["iterate"] = self.calls.get("iterate", 0) + examples
            return loss  # type: ignore[no-any-return]

        if isinstance(inner, SVRG):
            inner.step(averaged_loss, num_examples=examples)
        else:
            inner.step(averaged_loss)

    def _is_solved(self, tolerance: float) -> bool:
        """Whether the gradient proves the accuracy: ``|v|^2 <= 2 lambda' eps``."""
        _, gradients, examples, _ = full_gradient(
            self.name, self.closure, self.variables, self.batches, self.size
        )
        self.calls["full"] = self.calls.get("full", 0) + examples
        remaining_gradients = iter(gradients)
        subproblem_gradients = [
            u * group["weight_decay"]
            if (g := next(remaining_gradients)) is None
            else g + group["weight_decay"] * u
            for group in self.groups
            for u in group["params"]
        ]
        # Strong convexity: h(u) - min h <= |v|^2 / (2 lambda').
        convexity = min(group["weight_decay"] for group in self.groups)
        return joint_norm(subproblem_gradients) <= math.sqrt(2 * convexity * tolerance)
