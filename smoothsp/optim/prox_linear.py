r"""Prox-linear training of networks by a sequence of convex problems.

Outer iteration k replaces the network's outputs :math:`g(w)` by their first-order model
around :math:`w_{k-1}` under the convex loss h, and solves

.. math::

    \min_w \; \frac1n \sum_i h_i\bigl(g_i(w_{k-1}) + \nabla g_i(w_{k-1})
        (w - w_{k-1})\bigr) + \frac\lambda2 \|w\|^2
        + \frac{1}{2\eta} \|w - w_{k-1}\|^2

with a convex solver. In :math:`u = w - c`, for
:math:`c = w_{k-1} / (1 + \eta \lambda)`, the last two terms are
:math:`(\lambda + 1/\eta) / 2 \, \|u\|^2` and a constant: plain weight decay.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT, StateDict

from smoothsp.optim import _checks, _ranks
from smoothsp.optim._batches import Size, num_examples, require_repeatable
from smoothsp.optim._divergence import explain_divergence
from smoothsp.optim._evaluation import (
    Closure,
    depends_on,
    full_loss,
    joint_norm,
)
from smoothsp.optim._resumable import MuScheduleMixin, initial_mu
from smoothsp.optim._subproblem import Subproblem, centred_groups, groups_with_indices
from smoothsp.optim.casimir import CasimirSVRG
from smoothsp.optim.linearised import Linearised
from smoothsp.optim.schedules import ProxLinearSchedule

Inner = Callable[[list[dict[str, Any]]], Optimizer]


class ProxLinear(MuScheduleMixin):
    r"""Prox-linear: linearise the network, solve the convex problem, accept, repeat.

    In the closure, call ``optimizer.model`` in place of the network. It is the
    first-order model of the network while a subproblem is solved, and the network while
    the objective is evaluated. The loss must be convex in the outputs of the network.

    Parameters
    ----------
    model
        Any module that returns tensors; see ``Linearised``.
    lr
        Step length eta, > 0; ``inf`` removes the proximal term. The theory requires at
        most the inverse of the outputs' smoothness; tune it by factors of 10.
    weight_decay
        Weight lambda of the squared norm, >= 0.
    inner
        Constructor of the convex solver, such as ``torch.optim.SGD`` or a
        ``functools.partial`` of it. It is called with parameter groups at each outer
        iteration. The groups carry ``weight_decay``, which is ``lambda + 1/eta``, and
        ``smoothness``. None: ``CasimirSVRG.const``.
    smoothness
        Estimate L_0 of the smoothness of the first subproblem, > 0.
    smoothing
        Smoothing of the closure's loss, whose ``mu`` this optimizer sets.
    mu
        Initial smoothing strength; ``smoothing.mu`` if None.
    adaptive
        If True, iteration k uses ``mu / k`` and ``k L_0``; otherwise ``mu`` and
        ``L_0``.
    epochs
        Maximum number of epochs of the inner solver in an outer iteration.
    tolerance
        Accuracy eps_0 > 0 of the first subproblem; eps_0 / k of the k-th. The inner
        solver stops early when a gradient certifies it. Each test costs a full
        gradient. None: no tests.
    accept
        ``"if-better"``: steps that increase the objective are undone. ``"always"``: all
        steps are kept.
    params
        Parameters of the model, or groups of them with their own ``lr`` and
        ``weight_decay``; by default all that require gradients. Other parameters are
        constants.
    generator
        Random generator of the order of batches; see ``SVRG``.

    Attributes
    ----------
    model
        Module to call in the closure.
    progress
        After a step: ``outer`` iterations done, ``objective`` at the parameters,
        ``candidate`` objective, whether it was ``accepted``, ``mu``, ``smoothness`` and
        inner ``epochs``. Also ``prox_gradient_norm``, ``|w_{k-1} - w_k^| / eta`` of the
        candidate.
    oracle_calls
        Number of examples with gradient evaluations, as in ``SVRG``, and ``objective``:
        the number with loss evaluations for acceptance.

    Raises
    ------
    TypeError, ValueError
        For an argument outside its documented range.
    RuntimeError
        If an operation of the network lacks the derivatives needed, see ``Linearised``,
        or if the objective is not finite or ten times its initial value.

    Notes
    -----
    An outer iteration costs its epochs and two evaluations of the objective. An epoch
    of SVRG is three passes over a first-order model, which costs about twice the
    network. Memory: three times the parameters, in addition to the inner solver.

    With ``torch.distributed`` this optimizer averages all gradients: pass the module
    without ``DistributedDataParallel``.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 5, eq. (61) to (63), sections 7.2 and 7.3.2. The test of the tolerance is
    ``|v|^2 <= 2 (lambda + 1/eta) eps``, by strong convexity; it differs from section
    6.1.1.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import L2, StructuralHinge
    >>> from smoothsp.optim import ProxLinear
    >>> from smoothsp.oracles import Multiclass
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(40, 4, generator=generator)
    >>> batches = list(zip(x.split(10), x[:, :3].square().argmax(1).split(10)))
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 16), torch.nn.ELU(), torch.nn.Linear(16, 3))
    >>> hinge = StructuralHinge(L2(mu=1.0, k=3))
    >>> optimizer = ProxLinear(
    ...     model, lr=10.0, weight_decay=1e-3, smoothness=2.0,
    ...     smoothing=hinge.smoothing, generator=generator)
    >>> def closure(batch):
    ...     loss = hinge(Multiclass(optimizer.model(batch[0])), batch[1])
    ...     loss.backward()
    ...     return loss
    >>> def objective(batch):
    ...     return StructuralHinge()(Multiclass(optimizer.model(batch[0])), batch[1])
    >>> values = [optimizer.step(closure, batches, objective) for _ in range(12)]
    >>> values == sorted(values, reverse=True) and values[-1] < 0.8 * values[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        weight_decay: float = 0.0,
        *,
        inner: Inner | None = None,
        smoothness: float | None = None,
        smoothing: Any = None,
        mu: float | None = None,
        adaptive: bool = True,
        epochs: int = 5,
        tolerance: float | None = None,
        accept: str = "if-better",
        params: ParamsT | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"model: expected a torch.nn.Module, got {type(model).__name__}"
            )
        if inner is not None:
            _checks.function("inner", inner)
        _checks.count("epochs", epochs)
        _checks.choice("accept", accept, ("if-better", "always"))
        for name, value in (("smoothness", smoothness), ("tolerance", tolerance)):
            if value is not None:
                _checks.positive(name, value)
        if inner is None and smoothness is None:
            raise ValueError(
                "smoothness: expected an estimate for the default inner solver, got "
                "None; give it, or an inner solver of your own"
            )
        mu = initial_mu(smoothing, mu)
        self.smoothing = smoothing
        self.inner = inner
        self.epochs = epochs
        self.accept = accept
        self.schedule = ProxLinearSchedule(mu, smoothness, tolerance, adaptive)
        if params is None:
            params = [p for p in model.parameters() if p.requires_grad]
        super().__init__(
            params,
            {"lr": lr, "weight_decay": weight_decay},
            {"outer": 0, "mu_factor": 1.0, "first_objective": 0.0},
            ("iterate", "snapshot", "full", "objective"),
            generator,
        )
        moving = [p for group in self.param_groups for p in group["params"]]
        self.model = Linearised(model, [p for p in moving if p.requires_grad])
        self._set_smoothing_mu()

    def _mu_schedule(self) -> ProxLinearSchedule:
        return self.schedule

    def _invalid_entries(
        self, state_dict: StateDict, progress: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        yield from super()._invalid_entries(state_dict, progress)
        for number, group in enumerate(state_dict["param_groups"]):
            if not group["lr"] > 0:
                yield f"param_groups[{number}]['lr']", group["lr"]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise an error: the linearised parameters are fixed in the constructor."""
        if hasattr(self, "model"):
            raise RuntimeError(
                "ProxLinear.add_param_group: expected all groups in the constructor, "
                "as params=; build a new ProxLinear"
            )
        super().add_param_group(param_group)
        _checks.positive("lr", self.param_groups[-1]["lr"], infinite=True)
        _checks.nonnegative("weight_decay", self.param_groups[-1]["weight_decay"])

    @torch.no_grad()
    def step(  # type: ignore[override]
        self,
        closure: Callable[[Any], Any],
        batches: Iterable[Any],
        objective: Callable[[Any], Any] | None = None,
        *,
        size: Size = num_examples,
    ) -> float:
        """Make one outer iteration.

        Parameters
        ----------
        closure
            ``closure(batch)``: calls ``optimizer.model``, then ``backward()`` on the
            mean loss of the batch; returns it.
        batches
            A list of mini-batches, sampled uniformly with replacement, or a
            ``DataLoader``, read in its order.
        objective
            ``objective(batch)``: mean loss without smoothing, used to accept steps.
            None: the loss of the closure, with the mu of this iteration.
        size
            Function that returns the number of examples of a batch, its weight in
            means.

        Returns
        -------
        float
            The objective at the parameters after the step, with its regulariser.
        """
        require_repeatable("ProxLinear.step", batches)
        linear = self.model
        _ranks.require_equal(self._name, linear.linearisation_point)
        objective = closure if objective is None else objective
        k, mu = self.progress["outer"] + 1, self.mu
        # Equal batches before and after: their noise must not decide.
        before, terms = self._compute_objective(objective, batches, size)
        self._require_not_diverged(before)

        subproblem = Subproblem(
            self._name,
            centred_groups(linear, self.param_groups),
            self._check_uses_model(closure),
            batches,
            size,
            self.generator,
        )
        inner = self._make_inner_solver(
            subproblem, self.schedule.smoothness_at(k), terms
        )
        with (
            self._check_mu_read(),
            explain_divergence(subproblem.variables, self._divergence_error),
        ):
            epochs = subproblem.solve(inner, self.epochs, self.schedule.tolerance_at(k))
        for kind, examples in subproblem.calls.items():
            self.oracle_calls[kind] += examples

        # u - u_0 = w - w_{k-1}: both differ from w by the constant c.
        displacement = linear.displacement()
        # An undone candidate also restores buffers, such as running statistics.
        moving = [*linear.linearisation_point, *linear.network.buffers()]
        saved = [(tensor, tensor.clone()) for tensor in moving]
        accepted = False
        try:
            for p, change in zip(linear.linearisation_point, displacement, strict=True):
                p.add_(change)
            candidate, _ = self._compute_objective(objective, batches, size)
            if self.accept == "always":
                self._require_not_diverged(candidate)
            # A NaN compares as False: the candidate is undone.
            accepted = candidate <= before or self.accept == "always"
        finally:
            if not accepted:
                for tensor, saved_value in saved:
                    tensor.copy_(saved_value)
        self.progress.update(
            outer=k,
            objective=candidate if accepted else before,
            candidate=candidate,
            accepted=accepted,
            prox_gradient_norm=self._prox_gradient_norm(displacement),
            mu=mu,
            smoothness=self.schedule.smoothness_at(k),
            epochs=epochs,
        )
        self._set_smoothing_mu()
        return float(self.progress["objective"])

    def _require_not_diverged(self, objective: float) -> None:
        """Raise if an objective is not finite, or ten times the first."""
        first = self.progress["first_objective"]
        if not math.isfinite(objective):
            raise RuntimeError(
                self._divergence_message("a finite objective", f"{objective:.6g}")
            )
        if 0 < 10 * first < objective:
            expected = f"an objective below {10 * first:.6g}"
            raise RuntimeError(self._divergence_message(expected, f"{objective:.6g}"))
        self.progress["first_objective"] = first or objective

    def _divergence_error(self, expected: str, observed: str) -> RuntimeError:
        return RuntimeError(
            self._divergence_message(f"parameters {expected}", observed)
        )

    def _divergence_message(self, expected: str, observed: str) -> str:
        """Error message for a run that diverged: observed value, steps, remedy."""
        sizes = ", ".join(f"{group['lr']:.3g}" for group in self.param_groups)
        return (
            f"{self._name}: expected {expected}, got {observed} in outer iteration "
            f"{self.progress['outer'] + 1} with steps of length {sizes}; lower lr, or "
            "raise smoothness"
        )

    def _check_uses_model(self, closure: Closure) -> Closure:
        """Return the closure with a check that its loss uses ``optimizer.model``."""
        linear = self.model

        def checked_closure(batch: Any) -> Any:
            loss = closure(batch)
            has_no_gradient = all(u.grad is None for u in linear.variables)
            if has_no_gradient and depends_on(loss, linear.linearisation_point):
                raise RuntimeError(
                    f"closure: {self._name} expected the loss of optimizer.model, got "
                    "that of the network itself, which trains nothing; call "
                    "optimizer.model where it calls the network"
                )
            return loss

        return checked_closure

    def _make_inner_solver(
        self, subproblem: Subproblem, smoothness: float | None, terms: int
    ) -> Optimizer:
        groups = subproblem.groups
        if smoothness is not None:
            groups = [{**group, "smoothness": smoothness} for group in groups]
        if self.inner is not None:
            solver = self.inner(groups)
            if not isinstance(solver, Optimizer):
                raise TypeError(
                    "inner: expected a function that returns an optimizer, got one that"
                    f" returns {type(solver).__name__}"
                )
            return solver
        # Worse candidates are undone as a whole: no backtracking within them.
        return CasimirSVRG.const(
            groups, num_batches=terms, backtrack=None, generator=self.generator
        )

    def _compute_objective(
        self, objective: Closure, batches: Iterable[Any], size: Size
    ) -> tuple[float, int]:
        """Mean loss of the network itself plus the regulariser; number of batches."""
        # The network's outputs, detached, instead of its first-order model.
        self.model.exact = True
        try:
            with explain_divergence(
                self.model.linearisation_point, self._divergence_error
            ):
                loss, examples, terms = full_loss(
                    self._name,
                    objective,
                    batches,
                    size,
                    self.model.linearisation_point[0].device,
                )
        finally:
            self.model.exact = False
        self.oracle_calls["objective"] += examples
        for group, numbers in groups_with_indices(self.model, self.param_groups):
            if group["weight_decay"]:
                moving = [self.model.linearisation_point[number] for number in numbers]
                loss += group["weight_decay"] / 2 * joint_norm(moving) ** 2
        return loss, terms

    def _prox_gradient_norm(self, displacement: list[Tensor]) -> float:
        """``|w_{k-1} - w_k^| / eta``: eq. (63), for the candidate."""
        norms = [
            joint_norm([displacement[number] for number in numbers]) / group["lr"]
            for group, numbers in groups_with_indices(self.model, self.param_groups)
        ]
        return math.hypot(*norms)
