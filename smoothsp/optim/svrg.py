r"""Stochastic variance-reduced gradients.

An epoch starts at a snapshot :math:`\tilde w` with the full gradient there, and then

.. math::

    w \leftarrow w - \gamma \, [\nabla f_B(w) - \nabla f_B(\tilde w)
        + \nabla f(\tilde w) + \lambda w]

for each mini-batch B in turn. It ends at the mean of its iterates.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from smoothsp.optim import _checks, _ranks
from smoothsp.optim._batches import (
    Size,
    batch_weight,
    num_examples,
    require_repeatable,
    sample_batches,
)
from smoothsp.optim._divergence import explain_divergence
from smoothsp.optim._evaluation import (
    Closure,
    RandomState,
    evaluate,
    full_gradient,
    loss_as_float64,
    require_gradient,
    warn_if_different,
)
from smoothsp.optim._inspection import BufferGuard, refuse_scaled_gradients
from smoothsp.optim._resumable import Resumable

# Number of consecutive steps whose mean increase triggers backtracking.
LOSS_WINDOW = 3
# ``rises``: increases of the last batch losses. ``since``: step at which the average
# begins. ``full_loss``, ``first_loss``: losses at the last and at the first snapshot.
_INITIAL_BACKTRACK: dict[str, Any] = {
    "rises": [],
    "since": 0,
    "full_loss": 0.0,
    "first_loss": 0.0,
    "halvings": 0,
}


class SVRG(Resumable):
    r"""SVRG: stochastic gradients whose variance vanishes at the optimum.

    ``snapshot()`` starts an epoch, ``step()`` makes one step of it, and ``end_epoch()``
    ends it; ``epoch()`` calls all three. Closures are those of ``torch.optim``: they
    call ``backward()`` on the mean loss of some examples and return it. Leave out the
    regulariser ``weight_decay / 2 |w|^2``, which the optimizer adds. ``zero_grad()`` is
    called for you.

    Parameters
    ----------
    params
        Parameters, or groups of them with their own ``lr`` and ``weight_decay``.
        Parameters without a gradient are not changed.
    lr
        Step size, > 0; at most 1/(L + weight_decay) for terms whose gradients are
        L-Lipschitz.
    weight_decay
        Weight of the squared norm, >= 0.
    averaging
        If True, an epoch ends at the uniform mean of its iterates; otherwise at the
        last iterate.
    backtrack
        Fraction of the full loss, > 0. The losses of three consecutive batches may
        exceed those at the snapshot by this fraction on average. Otherwise the
        parameters return to the snapshot and the step size is halved. The first time a
        warning is issued. None: never, as in the theorems.
    generator
        Random generator of the order of batches in ``epoch()``. Its state is part of
        the optimizer's state, so ``DataLoader(..., generator=optimizer.generator)``
        resumes too. None: a new generator, seeded from ``torch.manual_seed``.

    Attributes
    ----------
    progress
        Counts: ``epoch`` and ``step`` of those completed, ``terms`` of batches in the
        last full gradient, and ``halvings`` of the step size.
    oracle_calls
        Number of examples with gradient evaluations: at the ``iterate``, at the
        ``snapshot``, and in ``full`` gradients.

    Raises
    ------
    TypeError, ValueError
        For an argument outside its documented range.
    RuntimeError
        If a closure leaves no gradient, a sparse gradient, or a gradient scaled by a
        ``GradScaler``. Also if the loss is not finite or ten times that of the first
        snapshot, or if the parameters differ between processes.

    Notes
    -----
    A step evaluates the closure twice with equal random numbers of torch. Draw random
    numbers of NumPy, Python and your own generators before it. Full gradients use
    separate dropout masks, fixed for an epoch. Buffers, such as those of BatchNorm,
    change at the iterates only. Do not clip gradients. An epoch costs one more pass
    over the data. Memory: three times the parameters, or two without averaging.

    With ``torch.distributed``, full gradients are averaged over the processes, weighted
    by their numbers of examples. ``DistributedDataParallel`` averages the gradients of
    steps. Call ``model.module`` in the snapshot's closure, which does not communicate
    at every batch.

    Source: Johnson and Zhang, "Accelerating stochastic gradient descent using
    predictive variance reduction", as used in section 7.2 of Pillutla et al.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.optim import SVRG
    >>> x = torch.linspace(-1, 1, 32).reshape(8, 4, 1)  # 8 batches of 4 examples
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = SVRG(model.parameters(), lr=0.4)
    >>> def closure(batch):
    ...     loss = (model(batch) - 3 * batch).square().mean()
    ...     loss.backward()
    ...     return loss
    >>> for _ in range(20):
    ...     full_loss = optimizer.snapshot(closure, x)
    ...     for batch in x:
    ...         loss = optimizer.step(lambda: closure(batch))
    ...     optimizer.end_epoch()
    >>> round(model.weight.item(), 4)
    3.0
    """

    _state_names: ClassVar[tuple[str, ...]] = ("full_gradient", "snapshot", "average")

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        weight_decay: float = 0.0,
        *,
        averaging: bool = True,
        backtrack: float | None = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        self.averaging = averaging
        if backtrack is not None:
            _checks.positive("backtrack", backtrack)
        self.backtrack = backtrack
        self._buffers = BufferGuard()
        # Arguments of step that a trainer cannot pass; set by smoothsp.lightning.
        self._batch_info: dict[str, Any] = {}
        super().__init__(
            params,
            {"lr": lr, "weight_decay": weight_decay},
            {"epoch": 0, "step": 0, "terms": 0, "open": False, **_INITIAL_BACKTRACK},
            ("iterate", "snapshot", "full"),
            generator,
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, before the first snapshot or between two epochs."""
        if getattr(self, "progress", {}).get("open"):
            raise RuntimeError(
                f"{self._name}.add_param_group: expected it between epochs, as the full"
                " gradient of an epoch is that of its parameters, got it after"
                f" {self.progress['step']} steps of one; call end_epoch() before"
            )
        super().add_param_group(param_group)
        _checks.positive("lr", self.param_groups[-1]["lr"])
        _checks.nonnegative("weight_decay", self.param_groups[-1]["weight_decay"])

    def snapshot(
        self,
        closure: Closure,
        batches: Iterable[Any] | None = None,
        *,
        size: Size = num_examples,
    ) -> float:
        """Start an epoch: store the parameters and compute their full gradient.

        Parameters
        ----------
        closure
            With ``batches``: ``closure(batch)``. Without: ``closure()`` for the mean
            loss of all examples; processes then have equal weights.
        batches
            A list of mini-batches, a ``DataLoader``, or another iterable.
        size
            Function that returns the number of examples of a batch, its weight in the
            mean.

        Returns
        -------
        float
            Mean loss over all examples, without the regulariser.
        """
        self.end_epoch()
        return self._start_epoch(closure, batches, size)

    def _match_device(self) -> None:
        """Convert the state to the dtype and device of its parameters."""
        for p, param_state in self.state.items():
            for name, x in param_state.items():
                if x.dtype != p.dtype or x.device != p.device:
                    param_state[name] = x.to(p)

    @torch.no_grad()
    def _start_epoch(
        self, closure: Closure, batches: Iterable[Any] | None, size: Size
    ) -> float:
        params = [p for group in self.param_groups for p in group["params"]]
        # Processes must start from equal parameters: gradients are averages over them.
        _ranks.require_equal(self._name, params)
        with self._check_mu_read(), explain_divergence(params, self._divergence_error):
            loss, gradients, examples, terms = full_gradient(
                self._name, closure, params, batches, size, self._side_evaluation
            )
        self.oracle_calls["full"] += examples
        self._require_not_diverged(loss)
        first = self.progress["first_loss"] or loss
        self.progress.update(full_loss=loss, first_loss=first, rises=[], since=0)
        for p, gradient in zip(params, gradients, strict=True):
            param_state = self.state[p]
            # The gradient of a parameter that the loss does not reach is 0: no state.
            if gradient is None:
                param_state.pop("full_gradient", None)
                continue
            param_state["full_gradient"] = gradient
            param_state["snapshot"] = p.detach().clone()
            if self.averaging:
                param_state["average"] = p.detach().clone()
        terms = 0 if batches is None else terms
        self.progress.update(open=True, step=0, terms=terms)
        return loss

    def _require_not_diverged(self, loss: float) -> None:
        """Raise if a loss is not finite, or ten times that of the first snapshot."""
        first = self.progress["first_loss"]
        finite = math.isfinite(loss)
        if finite and not 0 < 10 * first < loss:
            return
        expected = f"a loss below {10 * first:.6g}" if finite else "a finite loss"
        raise RuntimeError(self._divergence_message(expected, f"{loss:.6g}"))

    def _divergence_error(self, expected: str, observed: str) -> RuntimeError:
        return RuntimeError(
            self._divergence_message(f"parameters {expected}", observed)
        )

    def _divergence_message(self, expected: str, observed: str) -> str:
        """Error message for a run that diverged: observed value, steps, remedy."""
        sizes = ", ".join(f"{size:.3g}" for size in self.step_sizes)
        return (
            f"{self._name}: expected {expected}, got {observed} after "
            f"{self.progress['epoch']} epochs and {self.progress['step']} steps of "
            f"length {sizes}; lower lr{self._extra_hint()}"
        )

    def _check_mu_read(self) -> AbstractContextManager[None]:
        """Context of a full gradient; subclasses check the closure in it."""
        return nullcontext()

    def _extra_hint(self) -> str:
        return ""

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        num_examples: float | None = None,
        *,
        at_snapshot: Callable[[], Any] | None = None,
    ) -> Any:
        """Make one step on a mini-batch.

        Parameters
        ----------
        closure
            Called twice, at the snapshot and at the parameters.
        num_examples
            Number of examples of the closure, for ``oracle_calls``. None: 1.
        at_snapshot
            Closure to call at the snapshot instead: equal loss, without side effects
            that should happen once, such as logging. Its gradients are averaged over
            the processes by this optimizer.

        Returns
        -------
        Tensor
            Loss that the closure returned at the parameters before the step.
        """
        if closure is None:
            raise TypeError(
                f"closure: {self._name}.step expected a function that computes the loss"
                " and calls backward(), as it evaluates it twice; got None"
            )
        if not self.progress["open"]:
            raise RuntimeError(
                f"{self._name}: expected snapshot(closure, batches) before the first "
                "step of an epoch, to take the full gradient"
            )
        at_snapshot = at_snapshot or self._batch_info.get("at_snapshot")
        if num_examples is None:
            num_examples = self._batch_info.get("num_examples", 1)
        self._match_device()
        params = [p for group in self.param_groups for p in group["params"]]
        active = [p for group in self.param_groups for p in self._active_params(group)]
        param_states = [self.state[p] for p in active]
        # v = full gradient - gradient at the snapshot + gradient at the parameters:
        # unbiased, and its variance vanishes as both points approach the minimum.
        v = [param_state["full_gradient"].clone() for param_state in param_states]
        snapshots = [param_state["snapshot"] for param_state in param_states]
        current_values = [p.clone() for p in active]
        # Equal random numbers: with different dropout masks the gradients would not
        # cancel.
        random = RandomState(active)
        try:
            _copy_into(active, snapshots)
            with self._side_evaluation(detect=False):
                loss_at_snapshot = self._evaluate(at_snapshot or closure, params)
            if at_snapshot is not None:
                _ranks.average_gradients(params)
            _add_gradients(v, active, -1)
        finally:
            _copy_into(active, current_values)
        random.restore()
        with explain_divergence(params, self._divergence_error):
            loss = self._evaluate(closure, params)
        _add_gradients(v, active, 1)
        # At the first step of an epoch both points are equal, so that the losses must
        # be.
        if not self.progress["step"] and all(map(torch.equal, active, snapshots)):
            warn_if_different(
                self._name, loss_at_snapshot, loss, at_snapshot is not None
            )
        self.oracle_calls["snapshot"] += num_examples
        self.oracle_calls["iterate"] += num_examples
        self.progress["step"] += 1
        if self._has_loss_increased(loss_at_snapshot, loss, active):
            self._backtrack(snapshots, active)
            return loss
        directions = dict(zip(active, v, strict=True))
        for group in self.param_groups:
            self._update_params(group, directions)
        return loss

    def _has_loss_increased(
        self, loss_at_snapshot: Any, loss: Any, params: list[Tensor]
    ) -> bool:
        """Whether the mean increase over the last batches exceeds ``backtrack``.

        ``loss_at_snapshot`` and ``loss`` are those of one batch at two points, so that
        the noise of sampling cancels. All processes decide alike, on averaged losses.
        """
        if not params:
            return False
        snapshot_loss, current_loss = (
            _ranks.mean_over_ranks(
                loss_as_float64(self._name, loss_value).to(params[0].device)
            )
            for loss_value in (loss_at_snapshot, loss)
        )
        # A NaN at the iterate alone is undone below by backtracking.
        if not math.isfinite(snapshot_loss) or (
            self.backtrack is None and not math.isfinite(current_loss)
        ):
            self._require_not_diverged(
                math.nan if math.isfinite(current_loss) else current_loss
            )
        if self.backtrack is None:
            return False
        increases = [*self.progress["rises"], current_loss - snapshot_loss][
            -LOSS_WINDOW:
        ]
        self.progress["rises"] = increases
        if not math.isfinite(current_loss):
            return True
        allowed_increase = self.backtrack * abs(self.progress["full_loss"])
        return (
            len(increases) == LOSS_WINDOW
            and sum(increases) > LOSS_WINDOW * allowed_increase
        )

    def _backtrack(self, snapshots: list[Tensor], params: list[Tensor]) -> None:
        """Return to the snapshot and halve the step size for the rest of the run."""
        _copy_into(params, snapshots)
        if self.averaging:
            _copy_into([self.state[p]["average"] for p in params], snapshots)
        sizes = self.step_sizes
        step, halvings = self.progress["step"], self.progress["halvings"] + 1
        self.progress.update(rises=[], since=step, halvings=halvings)
        if halvings == 1:
            shown = ", ".join(f"{size:.3g}" for size in sizes)
            warnings.warn(
                f"{self._name}: expected steps that decrease the loss, got losses "
                f"above those of the snapshot with steps of length {shown}; the "
                "parameters return to the snapshot, and steps are halved from here "
                f"on as often as needed (step_sizes). Lower lr{self._extra_hint()}",
                RuntimeWarning,
                stacklevel=5,
            )

    def _evaluate(self, closure: Callable[[], Any], params: list[Tensor]) -> Any:
        is_first_step = not self.progress["step"]
        with refuse_scaled_gradients(self._name) if is_first_step else nullcontext():
            loss = evaluate(self._name, closure, params)
        require_gradient(self._name, params, loss)
        return loss

    @contextmanager
    def _side_evaluation(self, detect: bool) -> Iterator[None]:
        """Context of evaluations at the snapshot: restores buffers of modules."""
        scaler = refuse_scaled_gradients(self._name) if detect else nullcontext()
        with scaler, self._buffers.restored(detect):
            yield

    def _update_params(
        self, group: dict[str, Any], directions: dict[Tensor, Tensor]
    ) -> None:
        params = self._active_params(group)
        if not params:
            return
        v = [directions[p] for p in params]
        if group["weight_decay"]:
            torch._foreach_add_(v, params, alpha=group["weight_decay"])
        self._add_prox_gradient(v, params)
        step_size = self._step_size(group)
        if not 0 <= step_size < math.inf:
            raise ValueError(
                f"lr: expected a number of at least 0 in each group, got {step_size}."
                " Did a scheduler set it?"
            )
        torch._foreach_add_(params, v, alpha=-step_size)
        if self.averaging:
            averages = [self.state[p]["average"] for p in params]
            # Running uniform mean: average += (w - average) / t.
            num_averaged = self.progress["step"] - self.progress["since"]
            torch._foreach_lerp_(averages, params, 1 / num_averaged)

    def _check_num_steps(self, steps: int) -> None:
        """Check the number of steps of an epoch before it begins; none here."""

    @property
    def step_sizes(self) -> list[float]:
        """Current step size of each parameter group."""
        return [self._step_size(group) for group in self.param_groups]

    def _step_size(self, group: dict[str, Any]) -> float:
        # Not by changing ``lr``: schedulers would overwrite or multiply it.
        halvings: int = self.progress["halvings"]
        return self._base_step_size(group) * 2.0**-halvings

    def _base_step_size(self, group: dict[str, Any]) -> float:
        """Step size of a group, before any halving."""
        return float(group["lr"])

    def _add_prox_gradient(self, v: list[Tensor], params: list[Tensor]) -> None:
        """Add the gradient of further regularisers; none here."""

    def _active_params(self, group: dict[str, Any]) -> list[Tensor]:
        return [
            p
            for p in group["params"]
            if p.requires_grad and "full_gradient" in self.state.get(p, ())
        ]

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Put the mean of the epoch's iterates into the parameters.

        Call it before you evaluate or save the parameters. ``snapshot()`` calls it if
        you did not.
        """
        self._match_device()
        if not self.progress["open"]:
            return
        if self.averaging and self.progress["step"]:
            for group in self.param_groups:
                active = self._active_params(group)
                _copy_into(active, [self.state[p]["average"] for p in active])
        self.progress.update(
            open=False, step=0, since=0, epoch=self.progress["epoch"] + 1
        )

    def epoch(
        self,
        closure: Callable[[Any], Any],
        batches: Iterable[Any],
        *,
        steps: int | None = None,
        size: Size = num_examples,
    ) -> float:
        """Run one epoch: snapshot, steps and averaging.

        Parameters
        ----------
        closure
            ``closure(batch)``: ``backward()`` on the mean loss of a batch; returns it.
        batches
            A list or another sequence, sampled uniformly with replacement, or a
            ``DataLoader``, read in its order.
        steps
            Number of steps, at least 1; the number of batches if None.
        size
            Function that returns the number of examples of a batch, its weight in the
            full gradient.

        Returns
        -------
        float
            Mean loss over all examples at the snapshot, without the regulariser.
        """
        require_repeatable(f"{self._name}.epoch", batches)
        if steps is not None:
            _checks.count("steps", steps)
        loss = self.snapshot(closure, batches, size=size)
        self._check_num_steps(steps or self.progress["terms"])
        for batch in sample_batches(batches, steps, self.generator):
            self.step(partial(closure, batch), num_examples=batch_weight(batch, size))
        self.end_epoch()
        return loss


def _add_gradients(totals: list[Tensor], params: list[Tensor], sign: int) -> None:
    """Add ``sign`` times the gradients of the parameters to ``totals``; None is 0."""
    for total, p in zip(totals, params, strict=True):
        if p.grad is not None:
            total.add_(p.grad, alpha=sign)


def _copy_into(targets: list[Tensor], values: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, values)
