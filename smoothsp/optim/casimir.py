r"""Casimir-SVRG: accelerated SVRG with adaptive smoothing.

Outer iteration k runs epochs of SVRG on

.. math::

    F_{\mu_k}(w) + \frac{\kappa_k}{2} \|w - z_{k-1}\|^2,

sets :math:`w_k` to the result, and moves the centre to :math:`z_k = w_k + \beta_k (w_k
- w_{k-1})`.
"""

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT, StateDict

from smoothsp.optim import _casimir_plan, _checks, _outer, _states
from smoothsp.optim._batches import Size, num_examples, require_repeatable
from smoothsp.optim._evaluation import Closure
from smoothsp.optim._resumable import MuScheduleMixin, initial_mu
from smoothsp.optim.schedules import (
    CasimirSchedule,
    Schedule,
    extrapolation,
    next_alpha,
    satisfies_theorem_16,
)
from smoothsp.optim.svrg import SVRG

WarmStart = Literal["restart", "prox-center", "extrapolation", "prev-iterate"]
Stop = Literal["budget", "relative"]


class CasimirSVRG(MuScheduleMixin, SVRG):
    r"""Casimir-SVRG: accelerated SVRG on a smoothed loss.

    Use it like ``SVRG``: call ``snapshot()``, steps and ``end_epoch()``, or ``epoch()``
    for all three. After the last epoch of an outer iteration the parameters hold
    ``w_k``. The next snapshot moves them to the starting point of the next iteration.
    Without smoothing this is Catalyst-SVRG.

    Parameters
    ----------
    params
        Parameters, or groups of them with their own ``lr``, ``weight_decay`` and
        ``smoothness``.
    lr
        Step size. None: ``1 / (smoothness + weight_decay + kappa)``, updated as kappa
        grows and mu shrinks; the smoothness is proportional to 1 / mu. Schedulers
        multiply it by the ratio of their ``lr`` to its initial value; ``step_sizes``
        has the product.
    weight_decay
        Weight lambda of the squared norm, >= 0. The smallest value of all groups is the
        strong convexity of the sequences and must not change.
    smoothness
        Estimate of the Lipschitz constant of the terms' gradients, at the first mu, as
        returned by ``estimate_smoothness``.
    num_batches
        Number of terms of the sum: batches in an epoch. With ``smoothness`` it
        determines kappa. An epoch with a different number raises an error.
    kappa
        Weight of the proximal term, > 0; replaces that rule.
    smoothing
        Smoothing of the loss, such as ``losses.L2(mu, k)``, whose ``mu`` this optimizer
        sets. None if the loss is smooth or reads ``optimizer.mu``.
    mu
        Initial smoothing strength; ``smoothing.mu`` if None.
    decreasing
        Whether mu shrinks (corollaries 18 and 20) or stays (17 and 19). If it shrinks,
        kappa is ``weight_decay`` unless given.
    schedule
        Your own ``kappa_k``, ``mu_k``, ``delta_k`` and ``alpha_0``, instead of
        ``num_batches``, ``kappa``, ``mu`` and ``decreasing``.
    warm_start
        Starting point of iteration k. ``"extrapolation"``:
        ``w_{k-1} + kappa / (kappa + lambda) (z_{k-1} - z_{k-2})``, fast but unstable.
        ``"restart"``: the same point, but the outer loop restarts at ``w_{k-1}`` if the
        objective increased since the start of iteration k - 1; fast and stable.
        ``"prox-center"``: ``z_{k-1}``, as in the theory. ``"prev-iterate"``:
        ``w_{k-1}``, which with one epoch per iteration is no faster than ``SVRG``.
        None: ``"restart"``, or ``"prox-center"`` with ``stop="relative"``.
    stop
        ``"budget"``: an outer iteration has ``epochs`` epochs. ``"relative"``: it ends
        when the gradient of the subproblem proves ``w_k`` accurate up to
        ``delta_k kappa_k / 2 |w_k - z_{k-1}|^2``. Each snapshot tests this.
    epochs
        Number of epochs of an outer iteration; with ``"relative"`` the maximum. None:
        1, or 100 with ``"relative"``. If mu and a derived step size shrink, the number
        grows by proposition 27.
    averaging, backtrack, generator
        As for ``SVRG``.

    Attributes
    ----------
    progress
        Besides the entries of ``SVRG``: the number of ``outer`` iterations and of
        ``restarts``, the current ``alpha``, ``beta``, ``kappa`` and ``mu``, and
        ``proved``. The last is True if ``schedule.bound()`` holds so far, for a convex
        loss. This needs ``stop="relative"``. It becomes False after a restart, if you
        set mu, or if your own schedule violates theorem 16. It also becomes False, with
        a warning, if an iteration reaches ``epochs``.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As for ``SVRG``, and if the arguments do not determine ``lr`` or kappa.

    Notes
    -----
    Memory: three parameter sizes more than ``SVRG``, two with ``"prox-center"`` and
    ``"prev-iterate"``. ``"restart"`` compares objectives of snapshots, which are
    computed anyway. A restart costs one more full gradient, at ``w_{k-1}``. If
    ``batches`` is an iterator, which can be read only once, the snapshot stays and only
    the steps start at ``w_{k-1}``.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 4, eq. (26) to (29), section 7.3.1, proposition 29 for kappa. Restarts:
    O'Donoghue and Candès, "Adaptive restart for accelerated gradient schemes", the
    function scheme.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import L2, StructuralHinge
    >>> from smoothsp.optim import CasimirSVRG
    >>> from smoothsp.oracles import Multiclass
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(60, 5, generator=generator)
    >>> batches = list(zip(x.split(6), x[:, :3].argmax(1).split(6)))
    >>> model = torch.nn.Linear(5, 3, bias=False)
    >>> hinge = StructuralHinge(L2(mu=1.0, k=3))
    >>> optimizer = CasimirSVRG.const(
    ...     model.parameters(), smoothness=5.0, num_batches=10, weight_decay=0.01,
    ...     smoothing=hinge.smoothing, generator=generator)
    >>> def closure(batch):
    ...     loss = hinge(Multiclass(model(batch[0])), batch[1])
    ...     loss.backward()
    ...     return loss
    >>> losses = [optimizer.epoch(closure, batches) for _ in range(30)]
    >>> losses[-1] < 0.4 * losses[0]
    True
    >>> optimizer.mu = 0.1
    >>> hinge.smoothing.mu  # follows
    0.1
    """

    _state_names = (*SVRG._state_names, "center", "iterate", "older_center")

    def __init__(
        self,
        params: ParamsT,
        lr: float | None = None,
        weight_decay: float = 0.0,
        *,
        smoothness: float | None = None,
        num_batches: int | None = None,
        kappa: float | None = None,
        smoothing: Any = None,
        mu: float | None = None,
        decreasing: bool = False,
        schedule: Schedule | None = None,
        warm_start: WarmStart | None = None,
        stop: Stop = "budget",
        epochs: int | None = None,
        averaging: bool = True,
        backtrack: float | None = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        _checks.choice("stop", stop, get_args(Stop))
        if warm_start is None:
            warm_start = "restart" if stop == "budget" else "prox-center"
        _checks.choice("warm_start", warm_start, get_args(WarmStart))
        _checks.settable_mu(smoothing)
        self.smoothing = smoothing
        self.warm_start = warm_start
        self.stop = stop
        self.epochs = (1 if stop == "budget" else 100) if epochs is None else epochs
        _checks.count("epochs", self.epochs)
        self._derived_lr = lr is None
        rate = 1.0 if lr is None else lr
        super().__init__(
            params,
            rate,
            weight_decay,
            averaging=averaging,
            backtrack=backtrack,
            generator=generator,
        )
        self.defaults["smoothness"] = smoothness
        for group in self.param_groups:
            group.setdefault("smoothness", smoothness)
            _casimir_plan.check_group(group)
        self._user_schedule = schedule
        if schedule is None:
            mu = initial_mu(smoothing, mu)
            schedule, num_batches = _casimir_plan.choose_schedule(
                self.param_groups, num_batches, kappa, mu, decreasing
            )
            self.progress["schedule"] = asdict(schedule)
        elif (num_batches, kappa, mu, decreasing) != (None, None, None, False):
            raise ValueError(
                "schedule: expected no num_batches, kappa, mu or decreasing beside it, "
                "as it replaces them"
            )
        else:
            decay = _casimir_plan.min_weight_decay(self.param_groups)
            decay = getattr(schedule, "weight_decay", decay)
            _casimir_plan.require_same_convexity(self.param_groups, decay)
        self.progress.update(outer=0, inner=0, alpha=schedule.alpha_0, beta=0.0)
        self.progress.update(
            mu_factor=1.0,
            restarts=0,
            # Objective at the start of the outer iteration, and its mu.
            start_objective=math.inf,
            start_mu=0.0,
            # of the last epoch, for the budget
            epoch_steps=1,
        )
        self.progress["num_batches"] = num_batches
        self.progress["weight_decay"] = _casimir_plan.min_weight_decay(
            self.param_groups
        )
        # Theorem 16 needs (26) in every outer iteration, which only this rule tests.
        self.progress["proved"] = stop == "relative"
        self._mu_changed()

    @classmethod
    def const(
        cls,
        params: ParamsT,
        smoothness: float | None = None,
        *,
        num_batches: int,
        **options: Any,
    ) -> "CasimirSVRG":
        """Casimir-SVRG-const: constant mu; kappa and step size from ``smoothness``.

        Tune ``smoothness`` by factors of 2.
        """
        return cls(params, smoothness=smoothness, num_batches=num_batches, **options)

    @classmethod
    def adapt(
        cls, params: ParamsT, lr: float, *, weight_decay: float, **options: Any
    ) -> "CasimirSVRG":
        """Casimir-SVRG-adapt: mu shrinks by 0.804 per iteration, kappa is the decay.

        Tune the step size by factors of 2; the result depends little on mu.
        """
        return cls(params, lr, weight_decay, decreasing=True, **options)

    @property
    def schedule(self) -> Schedule:
        """``kappa_k``, ``mu_k``, ``delta_k`` and ``alpha_0``."""
        return self._user_schedule or CasimirSchedule(**self.progress["schedule"])

    def _mu_schedule(self) -> Schedule:
        return self.schedule

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, before the first snapshot or between two epochs."""
        if "weight_decay" in self.progress:
            decay = param_group.get("weight_decay", self.defaults["weight_decay"])
            groups = [*self.param_groups, {"weight_decay": decay}]
            _casimir_plan.require_same_convexity(groups, self.progress["weight_decay"])
        derived = self._derived_lr and "lr" not in param_group
        # 0.0 marks a derived step size, None one of the user.
        param_group.setdefault("derived_lr", 0.0 if derived else None)
        param_group.setdefault("first_lr", None)
        super().add_param_group(param_group)
        if "smoothness" in self.defaults:
            _casimir_plan.check_group(param_group)
            self._mu_changed()

    def _mu_changed(self) -> None:
        _casimir_plan.apply_schedule(
            self.schedule, self.progress, self.param_groups, self.smoothing
        )

    def _active_states(self) -> tuple[list[Tensor], list[dict[str, Any]], list[float]]:
        """Parameters with gradients, their states, and their weight decays."""
        moving = [(p, g) for g in self.param_groups for p in self._active_params(g)]
        params = [p for p, _ in moving]
        decays = [group["weight_decay"] for _, group in moving]
        return params, [self.state[p] for p in params], decays

    @torch.no_grad()
    def snapshot(
        self,
        closure: Closure,
        batches: Iterable[Any] | None = None,
        *,
        size: Size = num_examples,
    ) -> float:
        """Start an epoch of the current outer iteration, as ``SVRG.snapshot``.

        With ``stop="relative"`` the full gradient also tests whether the outer
        iteration has ended. If so, another full gradient is computed at the start of
        the next one.
        """
        self.end_epoch()
        _casimir_plan.require_same_convexity(
            self.param_groups, self.progress["weight_decay"]
        )
        self._mu_changed()
        if self.stop == "relative" and batches is not None:
            require_repeatable(f'{self._name} with stop="relative"', batches)
        if self.progress["inner"]:
            loss = self._start_epoch(closure, batches, size)
            params, param_states, _ = self._active_states()
            _outer.initialise(params, param_states)
            if self.stop == "budget" or not self._is_outer_finished():
                return loss
            self.progress["open"] = False
            self._finish_outer()
        params, param_states, _ = self._active_states()
        kappa = self.progress["kappa"]
        # Section 7.3.1: the minimiser follows the centre by kappa / (kappa + lambda).
        factor = kappa / (kappa + _casimir_plan.min_weight_decay(self.param_groups))
        _outer.move_to_start(params, param_states, self.warm_start, factor)
        loss = self._start_epoch(closure, batches, size)
        params, param_states, decays = self._active_states()
        _outer.initialise(params, param_states)
        objective = loss + _outer.regulariser(params, decays)
        if self.warm_start == "restart" and self._has_objective_increased(objective):
            _outer.restart(params, param_states)
            self.progress["restarts"] += 1
            # Theorem 16 does not cover restarts.
            self.progress.update(alpha=self.schedule.alpha_0, beta=0.0, proved=False)
            # w_{k-1} is not the snapshot of an iterator, which can be read only once.
            if not isinstance(batches, Iterator):
                loss = self._start_epoch(closure, batches, size)
                objective = loss + _outer.regulariser(params, decays)
        self.progress.update(start_objective=objective, start_mu=self.mu)
        return loss

    def _has_objective_increased(self, objective: float) -> bool:
        """Whether the objective exceeds that at the previous iteration's start."""
        previous_objective: float = self.progress["start_objective"]
        # A larger mu raises the smoothed objective by itself.
        if previous_objective == math.inf or self.mu > self.progress["start_mu"]:
            return False
        eps = max(
            (torch.finfo(p.dtype).eps for p in self._active_states()[0]), default=0.0
        )
        return objective - previous_objective > eps * abs(previous_objective)

    def _is_outer_finished(self) -> bool:
        k = self.progress["outer"] + 1
        delta, kappa = self.schedule.delta_at(k), self.progress["kappa"]
        convexity = _casimir_plan.min_weight_decay(self.param_groups)
        if _outer.is_accurate(*self._active_states(), convexity, kappa, delta):
            is_covered = satisfies_theorem_16(self.schedule, k, convexity)
            if not is_covered or self.progress["mu_factor"] != 1:
                self.progress["proved"] = False
            return True
        max_epochs = self._epochs_needed()
        if self.progress["inner"] < max_epochs:
            return False
        if self.progress["proved"]:
            self.progress["proved"] = False
            warnings.warn(
                f"epochs: expected outer iteration {k} to reach its relative accuracy "
                f"delta = {delta:.3g}, got no certificate after the maximum of"
                f" {max_epochs} epochs; the bounds of the schedule no longer hold."
                " Raise epochs, or choose a better smoothness or lr",
                RuntimeWarning,
                stacklevel=4,
            )
        return True

    def _epochs_needed(self) -> int:
        steps = self.progress["epoch_steps"]
        return _casimir_plan.epochs_needed(
            self.schedule, self.progress, self.param_groups, self.epochs, steps
        )

    def _check_num_steps(self, steps: int) -> None:
        terms = self.progress["terms"]
        _casimir_plan.require_num_batches(self.progress["num_batches"], terms, steps)

    def _base_step_size(self, group: dict[str, Any]) -> float:
        return _casimir_plan.compute_step_size(group)

    def _add_prox_gradient(self, v: list[Tensor], params: list[Tensor]) -> None:
        """Add ``kappa (w - z)``, the gradient of the proximal term."""
        kappa = self.progress["kappa"]
        torch._foreach_add_(v, params, alpha=kappa)
        torch._foreach_add_(v, [self.state[p]["center"] for p in params], alpha=-kappa)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Put the mean of the epoch's iterates into the parameters.

        With ``stop="budget"`` the last epoch of an outer iteration yields ``w_k`` and
        ends the iteration.
        """
        self._match_device()
        if not self.progress["open"]:
            return
        self._check_num_steps(self.progress["step"])
        self.progress["epoch_steps"] = max(1, self.progress["step"])
        super().end_epoch()
        self.progress["inner"] += 1
        if self.stop == "budget" and self.progress["inner"] >= self._epochs_needed():
            self._finish_outer()

    def _finish_outer(self) -> None:
        decay, k = (
            _casimir_plan.min_weight_decay(self.param_groups),
            self.progress["outer"] + 1,
        )
        alpha, kappa = self.progress["alpha"], self.schedule.kappa_at(k)
        next_kappa = self.schedule.kappa_at(k + 1)
        alpha_k = next_alpha(alpha, kappa, next_kappa, decay)
        beta = extrapolation(alpha, alpha_k, kappa, next_kappa, decay)
        params, param_states, _ = self._active_states()
        # z_{k-2} is only needed for these starting points.
        keep_older = self.warm_start in ("restart", "extrapolation")
        _outer.extrapolate(params, param_states, beta, keep_older)
        self.progress.update(outer=k, inner=0, alpha=alpha_k, beta=beta)
        self._mu_changed()

    def _extra_hint(self) -> str:
        if self.warm_start == "restart":
            return " or raise smoothness"
        return ', raise smoothness, or use warm_start="restart"'

    def _invalid_entries(
        self, state_dict: StateDict, progress: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        yield from super()._invalid_entries(state_dict, progress)
        for number, group in enumerate(state_dict["param_groups"]):
            path = f"param_groups[{number}]"
            for name in {"derived_lr", "first_lr"} - set(group):
                yield f"{path}[{name!r}]", "nothing"
            if group.get("derived_lr") is not None:
                for name in ("smoothness", "first_lr"):
                    if group.get(name) is None:
                        yield f"{path}[{name!r}]", None
        if self._user_schedule is None:
            try:
                expected = self.progress["schedule"]
                _states.require_same_structure(
                    "schedule", expected, progress["schedule"]
                )
                CasimirSchedule(**progress["schedule"])
            except ValueError:
                yield "progress['schedule']", progress["schedule"]
