r"""Stochastic variance-reduced gradients.

An epoch starts at a snapshot :math:`\tilde w` with the full gradient there, and then

.. math::

    w \leftarrow w - \gamma \, [\nabla f_B(w) - \nabla f_B(\tilde w)
        + \nabla f(\tilde w) + \lambda w]

for one mini-batch B after the other. It ends at the mean of its iterates.
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
    loss_of,
    require_gradient,
    warn_if_different,
)
from smoothsp.optim._inspection import Buffers, gradients_of_the_loss
from smoothsp.optim._resumable import Resumable

# of how many steps the mean rise counts
RISES = 3
# rises of the last steps, since which step they and the average count, the loss at the
# last snapshot and at the first, and how often steps were halved
_NO_RISE: dict[str, Any] = {
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
        If a closure leaves no gradient, a sparse one, or one that a ``GradScaler``
        scaled. Also if the loss is not finite or ten times that of the first snapshot,
        or if the parameters differ between processes.

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

    _kept_names: ClassVar[tuple[str, ...]] = ("full_gradient", "snapshot", "average")

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
        self._buffers = Buffers()
        # what a trainer that calls step(closure) cannot say; see smoothsp.lightning
        self._of_batch: dict[str, Any] = {}
        super().__init__(
            params,
            {"lr": lr, "weight_decay": weight_decay},
            {"epoch": 0, "step": 0, "terms": 0, "open": False, **_NO_RISE},
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

    def _follow(self) -> None:
        """Bring what is kept to the dtype and device that a module was moved to."""
        for p, kept in self.state.items():
            for name, x in kept.items():
                if x.dtype != p.dtype or x.device != p.device:
                    kept[name] = x.to(p)

    @torch.no_grad()
    def _start_epoch(
        self, closure: Closure, batches: Iterable[Any] | None, size: Size
    ) -> float:
        params = [p for group in self.param_groups for p in group["params"]]
        _ranks.require_equal(self._name, params)
        with self._watch(), explain_divergence(params, self._diverged):
            loss, gradients, examples, terms = full_gradient(
                self._name, closure, params, batches, size, self._aside
            )
        self.oracle_calls["full"] += examples
        self._require_sound(loss)
        first = self.progress["first_loss"] or loss
        self.progress.update(full_loss=loss, first_loss=first, rises=[], since=0)
        for p, gradient in zip(params, gradients, strict=True):
            kept = self.state[p]
            if gradient is None:
                kept.pop("full_gradient", None)
                continue
            kept["full_gradient"] = gradient
            kept["snapshot"] = p.detach().clone()
            if self.averaging:
                kept["average"] = p.detach().clone()
        terms = 0 if batches is None else terms
        self.progress.update(open=True, step=0, terms=terms)
        return loss

    def _require_sound(self, loss: float) -> None:
        """Refuse a loss that is not finite, or ten times that of the first snapshot."""
        first = self.progress["first_loss"]
        finite = math.isfinite(loss)
        if finite and not 0 < 10 * first < loss:
            return
        expected = f"a loss below {10 * first:.6g}" if finite else "a finite loss"
        raise RuntimeError(self._sentence(expected, f"{loss:.6g}"))

    def _diverged(self, expected: str, found: str) -> RuntimeError:
        return RuntimeError(self._sentence(f"parameters {expected}", found))

    def _sentence(self, expected: str, found: str) -> str:
        """Say that training has diverged, with which steps, and what to try."""
        sizes = ", ".join(f"{size:.3g}" for size in self.step_sizes)
        return (
            f"{self._name}: expected {expected}, got {found} after "
            f"{self.progress['epoch']} epochs and {self.progress['step']} steps of "
            f"length {sizes}; lower lr{self._other_remedy()}"
        )

    def _watch(self) -> AbstractContextManager[None]:
        """Around a full gradient: what a closure has to do besides."""
        return nullcontext()

    def _other_remedy(self) -> str:
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
        at_snapshot = at_snapshot or self._of_batch.get("at_snapshot")
        if num_examples is None:
            num_examples = self._of_batch.get("num_examples", 1)
        self._follow()
        params = [p for group in self.param_groups for p in group["params"]]
        active = [p for group in self.param_groups for p in self._active(group)]
        kept = [self.state[p] for p in active]
        v = [one["full_gradient"].clone() for one in kept]
        snapshots = [one["snapshot"] for one in kept]
        here = [p.clone() for p in active]
        random = RandomState(active)
        try:
            _copy(active, snapshots)
            with self._aside(look=False):
                before = self._evaluate(at_snapshot or closure, params)
            if at_snapshot is not None:
                _ranks.average_gradients(params)
            _add_gradients(v, active, -1)
        finally:
            _copy(active, here)
        random.restore()
        with explain_divergence(params, self._diverged):
            loss = self._evaluate(closure, params)
        _add_gradients(v, active, 1)
        if not self.progress["step"] and all(map(torch.equal, active, snapshots)):
            warn_if_different(self._name, before, loss, at_snapshot is not None)
        self.oracle_calls["snapshot"] += num_examples
        self.oracle_calls["iterate"] += num_examples
        self.progress["step"] += 1
        if self._has_risen_from(before, loss, active):
            self._return_to(snapshots, active)
            return loss
        directions = dict(zip(active, v, strict=True))
        for group in self.param_groups:
            self._move(group, directions)
        return loss

    def _has_risen_from(self, before: Any, loss: Any, params: list[Tensor]) -> bool:
        """Whether the last batches say that the iterates are worse than the snapshot.

        ``before`` and ``loss`` are those of one batch, at the snapshot and here.
        """
        if not params:
            return False
        there, here = (
            _ranks.mean_over_ranks(loss_of(self._name, one).to(params[0].device))
            for one in (before, loss)
        )
        if not math.isfinite(there) or (
            self.backtrack is None and not math.isfinite(here)
        ):
            self._require_sound(math.nan if math.isfinite(here) else here)
        if self.backtrack is None:
            return False
        rises = [*self.progress["rises"], here - there][-RISES:]
        self.progress["rises"] = rises
        if not math.isfinite(here):
            return True
        most = self.backtrack * abs(self.progress["full_loss"])
        return len(rises) == RISES and sum(rises) > RISES * most

    def _return_to(self, snapshots: list[Tensor], params: list[Tensor]) -> None:
        """Begin the epoch anew, with steps of half the length."""
        _copy(params, snapshots)
        if self.averaging:
            _copy([self.state[p]["average"] for p in params], snapshots)
        sizes = self.step_sizes
        step, halvings = self.progress["step"], self.progress["halvings"] + 1
        self.progress.update(rises=[], since=step, halvings=halvings)
        if halvings == 1:
            shown = ", ".join(f"{size:.3g}" for size in sizes)
            warnings.warn(
                f"{self._name}: expected steps that decrease the loss, got losses "
                f"above those of the snapshot with steps of length {shown}; the "
                "parameters return to the snapshot, and steps are halved from here "
                f"on as often as needed (step_sizes). Lower lr{self._other_remedy()}",
                RuntimeWarning,
                stacklevel=5,
            )

    def _evaluate(self, closure: Callable[[], Any], params: list[Tensor]) -> Any:
        looked_at = not self.progress["step"]
        with gradients_of_the_loss(self._name) if looked_at else nullcontext():
            loss = evaluate(self._name, closure, params)
        require_gradient(self._name, params, loss)
        return loss

    @contextmanager
    def _aside(self, look: bool) -> Iterator[None]:
        """Evaluate where the parameters will not be: leave no trace in the modules."""
        scaler = gradients_of_the_loss(self._name) if look else nullcontext()
        with scaler, self._buffers.held(look):
            yield

    def _move(self, group: dict[str, Any], directions: dict[Tensor, Tensor]) -> None:
        params = self._active(group)
        if not params:
            return
        v = [directions[p] for p in params]
        if group["weight_decay"]:
            torch._foreach_add_(v, params, alpha=group["weight_decay"])
        self._pull(v, params)
        rate = self._step_size(group)
        if not 0 <= rate < math.inf:
            raise ValueError(
                f"lr: expected a number of at least 0 in each group, got {rate}. Did a"
                " scheduler set it?"
            )
        torch._foreach_add_(params, v, alpha=-rate)
        if self.averaging:
            averages = [self.state[p]["average"] for p in params]
            counted = self.progress["step"] - self.progress["since"]
            torch._foreach_lerp_(averages, params, 1 / counted)

    def _expect(self, steps: int) -> None:
        """Look at an epoch of so many steps before it begins."""

    @property
    def step_sizes(self) -> list[float]:
        """Current step size of each parameter group."""
        return [self._step_size(group) for group in self.param_groups]

    def _step_size(self, group: dict[str, Any]) -> float:
        halvings: int = self.progress["halvings"]
        return self._rate(group) * 2.0**-halvings

    def _rate(self, group: dict[str, Any]) -> float:
        """Step size of a group, before any halving."""
        return float(group["lr"])

    def _pull(self, v: list[Tensor], params: list[Tensor]) -> None:
        """Add the gradient of further regularisers: none."""

    def _active(self, group: dict[str, Any]) -> list[Tensor]:
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
        self._follow()
        if not self.progress["open"]:
            return
        if self.averaging and self.progress["step"]:
            for group in self.param_groups:
                active = self._active(group)
                _copy(active, [self.state[p]["average"] for p in active])
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
        self._expect(steps or self.progress["terms"])
        for batch in sample_batches(batches, steps, self.generator):
            self.step(partial(closure, batch), num_examples=batch_weight(batch, size))
        self.end_epoch()
        return loss


def _add_gradients(into: list[Tensor], params: list[Tensor], sign: int) -> None:
    """A parameter that a mini-batch leaves out has gradient 0 there."""
    for one, p in zip(into, params, strict=True):
        if p.grad is not None:
            one.add_(p.grad, alpha=sign)


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    if into:
        torch._foreach_copy_(into, values)
