r"""Casimir-SVRG: acceleration around SVRG, with a smoothing that follows.

Outer iteration k makes epochs of SVRG on

.. math::

    F_{\mu_k}(w) + \frac{\kappa_k}{2} \|w - z_{k-1}\|^2,

calls the result :math:`w_k`, and moves the centre to
:math:`z_k = w_k + \beta_k (w_k - w_{k-1})`.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from smoothsp.optim import _budget, _checks, _outer
from smoothsp.optim._batches import Size, num_examples, require_repeatable
from smoothsp.optim._bound_mu import BoundMu, starting_mu
from smoothsp.optim._evaluation import Closure
from smoothsp.optim.schedules import (
    CasimirSchedule,
    Schedule,
    extrapolation,
    next_alpha,
)
from smoothsp.optim.svrg import SVRG

WarmStart = Literal["prox-center", "extrapolation", "prev-iterate"]
Stop = Literal["budget", "relative"]


class CasimirSVRG(BoundMu, SVRG):
    r"""Casimir-SVRG: SVRG accelerated, on a loss that is smoothed as it goes.

    Used like ``SVRG``: ``snapshot()``, steps, ``end_epoch()``, or ``epoch()`` for all
    three. After the last epoch of an outer iteration the parameters hold ``w_k``; the
    next snapshot moves them to where the next iteration starts. Without smoothing this
    is Catalyst-SVRG.

    Parameters
    ----------
    params
        Parameters, or groups of them with their own ``lr``, ``weight_decay`` and
        ``smoothness``.
    lr
        Step size. None: ``1 / (smoothness + weight_decay + kappa)``, kept up to date as
        kappa grows and as mu, to which the smoothness is inverse, shrinks. Schedulers
        multiply it: their ``lr`` stays relative to its value where they start, and
        ``step_sizes`` has the product.
    weight_decay
        Weight lambda of the squared norm, >= 0. The smallest one of all groups is the
        strong convexity that the sequences rely on, and has to stay.
    smoothness
        Estimate of the Lipschitz constant of the terms' gradients, at the first mu.
    num_batches
        Number of terms of the sum: batches in an epoch. With ``smoothness`` it gives
        kappa; an epoch with another number is refused.
    kappa
        Weight of the proximal term, > 0, instead of that rule.
    smoothing
        Object whose ``mu`` this optimizer sets, the loss's: ``losses.L2(mu, k)``.
        None: the loss is smooth, or reads ``optimizer.mu``.
    mu
        Strength of the smoothing at the start; ``smoothing.mu`` if None.
    decreasing
        Whether mu shrinks (corollaries 18 and 20) or stays (17 and 19). If it shrinks,
        kappa is ``weight_decay`` unless given.
    schedule
        ``kappa_k``, ``mu_k``, ``delta_k`` and ``alpha_0`` of your own, instead of
        ``num_batches``, ``kappa``, ``mu`` and ``decreasing``.
    warm_start
        Where iteration k starts: at ``z_{k-1}`` (``"prox-center"``), at ``w_{k-1}``
        (``"prev-iterate"``), or at ``w_{k-1} + kappa / (kappa + lambda)
        (z_{k-1} - z_{k-2})`` (``"extrapolation"``).
    stop
        ``"budget"``: an outer iteration is ``epochs`` epochs. ``"relative"``: it ends
        when the gradient of the subproblem proves ``w_k`` accurate up to
        ``delta_k kappa_k / 2 |w_k - z_{k-1}|^2``; each snapshot looks.
    epochs
        Of an outer iteration: how many, or with ``"relative"`` at most. None: 1, or
        100.
    averaging, generator
        As ``SVRG``.

    Attributes
    ----------
    progress
        Besides those of ``SVRG``: ``outer`` iterations done, and ``alpha``, ``beta``,
        ``kappa``, ``mu`` as they are now.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As ``SVRG``; and if nothing determines ``lr`` or kappa.

    Notes
    -----
    Memory: two parameter sizes more than ``SVRG``, three with ``"extrapolation"``.
    With too small a ``smoothness``, ``"extrapolation"`` diverges first and
    ``"prev-iterate"`` last.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 4, eq. (26) to (29), section 7.3.1, proposition 29 for kappa.

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
        warm_start: WarmStart = "prox-center",
        stop: Stop = "budget",
        epochs: int | None = None,
        averaging: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        _checks.choice("warm_start", warm_start, get_args(WarmStart))
        _checks.choice("stop", stop, get_args(Stop))
        _checks.settable_mu(smoothing)
        self.smoothing = smoothing
        self.warm_start = warm_start
        self.stop = stop
        self.epochs = (1 if stop == "budget" else 100) if epochs is None else epochs
        _checks.count("epochs", self.epochs)
        self._derived_lr = lr is None
        rate = 1.0 if lr is None else lr
        super().__init__(
            params, rate, weight_decay, averaging=averaging, generator=generator
        )
        self.defaults["smoothness"] = smoothness
        for group in self.param_groups:
            group.setdefault("smoothness", smoothness)
            _budget.check_group(group)
        self._own = schedule
        if schedule is None:
            mu = starting_mu(smoothing, mu)
            schedule, num_batches = _budget.choose(
                self.param_groups, num_batches, kappa, mu, decreasing
            )
            self.progress["schedule"] = asdict(schedule)
        elif (num_batches, kappa, mu, decreasing) != (None, None, None, False):
            raise ValueError(
                "schedule: expected no num_batches, kappa, mu or decreasing beside it, "
                "as it replaces them"
            )
        else:
            decay = _budget.strong_convexity(self.param_groups)
            decay = getattr(schedule, "weight_decay", decay)
            _budget.require_same_convexity(self.param_groups, decay)
        self.progress.update(outer=0, inner=0, alpha=schedule.alpha_0, beta=0.0)
        self.progress["mu_factor"] = 1.0
        self.progress["num_batches"] = num_batches
        self.progress["weight_decay"] = _budget.strong_convexity(self.param_groups)
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
        """Casimir-SVRG-const: mu stays, kappa and step follow from ``smoothness``.

        The smoothness is the number to search for, by factors of 2.
        """
        return cls(params, smoothness=smoothness, num_batches=num_batches, **options)

    @classmethod
    def adapt(
        cls, params: ParamsT, lr: float, *, weight_decay: float, **options: Any
    ) -> "CasimirSVRG":
        """Casimir-SVRG-adapt: mu shrinks by 0.804 an iteration, kappa is the decay.

        The step size is the number to search for, by factors of 2; mu matters little.
        """
        return cls(params, lr, weight_decay, decreasing=True, **options)

    @property
    def schedule(self) -> Schedule:
        """``kappa_k``, ``mu_k``, ``delta_k`` and ``alpha_0``."""
        return self._own or CasimirSchedule(**self.progress["schedule"])

    def _mu_schedule(self) -> Schedule:
        return self.schedule

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as in ``torch.optim``; it moves from the next snapshot on."""
        if "weight_decay" in self.progress:
            decay = param_group.get("weight_decay", self.defaults["weight_decay"])
            groups = [*self.param_groups, {"weight_decay": decay}]
            _budget.require_same_convexity(groups, self.progress["weight_decay"])
        derived = self._derived_lr and "lr" not in param_group
        param_group.setdefault("derived_lr", 0.0 if derived else None)
        param_group.setdefault("first_lr", None)
        super().add_param_group(param_group)
        if "smoothness" in self.defaults:
            _budget.check_group(param_group)
            self._mu_changed()

    def _mu_changed(self) -> None:
        _budget.follow(self.schedule, self.progress, self.param_groups, self.smoothing)

    def _kept(self) -> tuple[list[Tensor], list[dict[str, Any]], list[float]]:
        """Parameters that move, what is kept for them, and their weight decay."""
        moving = [(p, g) for g in self.param_groups for p in self._active(g)]
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
        """Start an epoch, as ``SVRG.snapshot``, where the outer iteration is.

        With ``stop="relative"`` the full gradient also decides whether the outer
        iteration is over; if it is, another one is taken where the next one starts.
        """
        self.end_epoch()
        _budget.require_same_convexity(self.param_groups, self.progress["weight_decay"])
        self._mu_changed()
        if self.stop == "relative" and batches is not None:
            require_repeatable(f'{self._name} with stop="relative"', batches)
        if self.progress["inner"]:
            loss = self._start_epoch(closure, batches, size)
            if self.stop == "budget" or not self._is_over():
                return loss
            self.progress["open"] = False
            self._advance()
        params, kept, _ = self._kept()
        kappa = self.progress["kappa"]
        factor = kappa / (kappa + _budget.strong_convexity(self.param_groups))
        _outer.start(params, kept, self.warm_start, factor)
        loss = self._start_epoch(closure, batches, size)
        params, kept, _ = self._kept()
        _outer.begin(params, kept)
        return loss

    def _is_over(self) -> bool:
        if self.progress["inner"] >= self.epochs:
            return True
        delta = self.schedule.delta_at(self.progress["outer"] + 1)
        convexity = _budget.strong_convexity(self.param_groups)
        kappa = self.progress["kappa"]
        return _outer.is_accurate(*self._kept(), convexity, kappa, delta)

    def _expect(self, steps: int) -> None:
        terms = self.progress["terms"]
        _budget.require_as_many(self.progress["num_batches"], terms, steps)

    def _rate(self, group: dict[str, Any]) -> float:
        return _budget.rate(group)

    def _pull(self, v: list[Tensor], params: list[Tensor]) -> None:
        """Add the gradient of the proximal term."""
        kappa = self.progress["kappa"]
        torch._foreach_add_(v, params, alpha=kappa)
        torch._foreach_add_(v, [self.state[p]["center"] for p in params], alpha=-kappa)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Put the mean of the epoch's iterates into the parameters.

        With ``stop="budget"`` and after the last epoch of an outer iteration, this is
        ``w_k``, and the outer iteration is over.
        """
        if not self.progress["open"]:
            return
        self._expect(self.progress["step"])
        super().end_epoch()
        self.progress["inner"] += 1
        if self.stop == "budget" and self.progress["inner"] >= self.epochs:
            self._advance()

    def _advance(self) -> None:
        decay, k = (
            _budget.strong_convexity(self.param_groups),
            self.progress["outer"] + 1,
        )
        alpha, kappa = self.progress["alpha"], self.schedule.kappa_at(k)
        next_kappa = self.schedule.kappa_at(k + 1)
        alpha_k = next_alpha(alpha, kappa, next_kappa, decay)
        beta = extrapolation(alpha, alpha_k, kappa, next_kappa, decay)
        params, kept, _ = self._kept()
        _outer.extrapolate(params, kept, beta, self.warm_start == "extrapolation")
        self.progress.update(outer=k, inner=0, alpha=alpha_k, beta=beta)
        self._mu_changed()

    def _other_remedy(self) -> str:
        return ', raise smoothness, or use warm_start="prev-iterate"'
