"""The questions of all structures: value, first and second derivative, tangent.

With the log-partition ``A(theta)`` over potentials theta,

    dA = <mu, d theta>                  mu are the marginals
    d mu = Cov(mu) d theta              Cov is the Hessian of A
    H = A - <mu, theta>,  dH = -<Cov(mu) theta, d theta>
    d max_y <theta, y> = <y*, d theta>  y* attains the maximum (Danskin)

A score is linear in the potentials; to count the parts that outputs use is its adjoint.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.double_double import DoubleDouble, to_dtype
from smoothsp.oracles._inference.engine import (
    Engine,
    scatter_counts,
    sum_shared,
    weight_rows,
)
from smoothsp.oracles._inference.op import Op, are_kernel_ready, potentials_need_grad
from smoothsp.oracles._inference.tracing import (
    is_eager,
    is_eager_tensor,
)
from smoothsp.oracles._inference.transforms import loop_over_batched_grads

FLOAT64 = torch.float64


def log_partition(
    engine: Engine, dtype: torch.dtype, two: bool = False
) -> DoubleDouble:
    """Logarithm of the sum over all outputs ``[B]``; differentiable twice.

    Of the dtype, or of float64 while something traces. With ``two`` as two numbers,
    too, where nothing traces.
    """
    if engine.runs_kernels and is_eager():
        question = LogPartition(engine, dtype, two)
        return DoubleDouble(question.call_eager(), question.hi_lo)
    return DoubleDouble(Sums(engine).call()[0])


def marginals(engine: Engine) -> tuple[Tensor, ...]:
    """Chance of each part, or its mean number of uses, ``[B, ...]`` by potentials.

    Differentiable once.
    """
    found: tuple[Tensor, ...] = Sums(engine).call()[1:]
    return found


def best(
    engine: Engine, k: int | None, dtype: torch.dtype, precise: bool = False
) -> tuple[DoubleDouble, Tensor]:
    """Values and labels of the best outputs, as ``Engine.best`` has them.

    Of the dtype, or of float64 while something traces.
    """
    question = Best(engine, k, dtype, precise)
    found = question.call()
    return DoubleDouble(found[0], question.hi_lo), found[1]


def k_best(
    engine: Engine, k: int, dtype: torch.dtype
) -> tuple[DoubleDouble, Tensor, Tensor]:
    """Return ``best``, and which of the k outputs there are ``[B, k]``."""
    question = Best(engine, k, dtype)
    found = question.call()
    values, exist = found[0], question.valid
    if exist is None:
        exist = values > -torch.inf
    return DoubleDouble(values, question.hi_lo), found[1], exist


def score(
    engine: Engine, used: Tensor, dtype: torch.dtype, two: bool = False
) -> DoubleDouble:
    """Scores ``[B, k]`` of outputs, as ``Engine.score`` has them.

    Of the dtype, or of float64 while something traces.
    """
    question = Score(engine, used, dtype, two)
    return DoubleDouble(question.call(), question.hi_lo)


def entropy(engine: Engine) -> Tensor:
    """Entropy ``[B]`` of the outputs; differentiable once."""
    found: Tensor = Entropy(engine).call()
    return found


def sample(engine: Engine, numbers: Tensor) -> Tensor:
    """Labels ``[B, n, ...]``, as ``Engine.sample`` draws them."""
    found: Tensor = Samples(engine, numbers).call()
    return found


class LogPartition(Op):
    """The log-partition ``[B]`` of plain tensors.

    Its marginals are no tensors of the graph: the first gradient may overwrite them.
    """

    hi_lo: Tensor | None = None

    def __init__(self, engine: Engine, dtype: torch.dtype, two: bool) -> None:
        self.engine, self.extra_tensors = engine, ()
        self.dtype, self.two = dtype, two

    def compute(self) -> Tensor:
        none = (False,) * len(self.engine.potentials)
        value, self.hi_lo, _ = self.engine.log_partition(none, self.dtype, self.two)
        return value

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Tensor:
        some = potentials_need_grad(ctx, len(tensors))
        value, self.hi_lo, ctx.marginals = self.engine.log_partition(
            some, self.dtype, self.two
        )
        ctx.save_for_backward(*tensors)
        return value

    def backward(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[()]]:
        # one step, so that no other thread gets them too
        known = vars(ctx).pop("marginals", None)
        tensors = ctx.saved_tensors
        some = potentials_need_grad(ctx, len(tensors))
        again = torch.is_grad_enabled()
        if known is not None and not again and is_eager_tensor(grad, grad.device.type):
            return self.engine.vjp(grad, known, some), ()
        engine = self.engine.with_tensors(tensors)
        if again:
            sums = Sums(engine)
            sums.known = engine.saved_marginals(known, some)
            found = sums.call()[1:]
        else:
            found = tuple(engine.log_partition_and_marginals(some, self.dtype)[2])
        return weight_rows(grad, found, engine.num_row_potentials, some), ()


class Sums(Op):
    """The log-partition ``[B]``, and the marginals of all potentials.

    ``known`` are the marginals, where they are.
    """

    returns_tensor = False
    known: Sequence[Tensor] | None = None

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # where nothing traces only the marginals are asked for
        self.dtype = None

    @classmethod
    def from_graph(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Sums":
        question = cls(engine)
        question.dtype = FLOAT64
        return question

    def compute(self) -> tuple[Tensor, ...]:
        if self.known is not None:
            return self.known[0].new_empty(len(self.known[0])), *self.known
        every = (True,) * len(self.engine.potentials)
        value, _, found = self.engine.log_partition_and_marginals(every, self.dtype)
        return value, *found

    def fake_result(self) -> tuple[Tensor, ...]:
        B = self.engine.potentials[0].shape[0]
        first = self.engine.potentials[0].new_empty((B,), dtype=FLOAT64)
        return first, *_rows_like(self.engine)

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    def _saved(self, ctx: Any) -> tuple[Engine, tuple[Tensor, ...]]:
        saved, m = ctx.saved_tensors, len(self.engine.potentials)
        return self.engine.with_tensors(saved[:-m]), saved[-m:]

    def backward(
        self, ctx: Any, grad: Tensor | None, *moves: Tensor | None
    ) -> tuple[Sequence[Any], tuple[()]]:
        engine, chances = self._saved(ctx)
        some = potentials_need_grad(ctx, len(chances))
        first = second = None
        if grad is not None:
            first = weight_rows(grad, chances, engine.num_row_potentials, some)
        if any(x is not None for x in moves):
            along = [
                torch.zeros_like(x) if v is None else v
                for v, x in zip(moves, chances, strict=True)
            ]
            pairs = zip(covariance(engine, along), some, strict=True)
            second = sum_shared(
                [x if want else None for x, want in pairs], engine.num_row_potentials
            )
        if first is None or second is None:
            return first or second or [None] * len(chances), ()
        both = zip(first, second, strict=True)
        return [None if a is None or b is None else a + b for a, b in both], ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        engine, chances = self._saved(ctx)
        along = _of_rows(tangents, chances, engine.num_row_potentials)
        return _inner(chances, along).to(self.dtype), *covariance(engine, along)


class Covariance(Op):
    """``Cov(mu) along``, ``[B, ...]`` by potentials: linear and symmetric in along."""

    returns_tensor = False

    def compute(self) -> tuple[Tensor, ...]:
        return tuple(self.engine.covariance(self.extra_tensors))

    def fake_result(self) -> tuple[Tensor, ...]:
        return tuple(_rows_like(self.engine))

    def backward(self, ctx: Any, *grads: Tensor) -> tuple[Sequence[Any], Sequence[Any]]:
        m = len(grads)
        if any(potentials_need_grad(ctx, m)):
            _refuse_third_derivatives()
        moved = covariance(self.engine.with_tensors(ctx.saved_tensors), grads)
        return [None] * m, moved

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        m = len(self.engine.potentials)
        if any(x is not None for x in tangents[:m]):
            _refuse_third_derivatives()
        engine = self.engine.with_tensors(ctx.saved_tensors)
        along = _of_rows(tangents[-m:], _rows_like(engine), m)
        return covariance(engine, along)


def covariance(engine: Engine, along: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """``Cov(mu) along`` by potentials, ``[B, ...]``, as ``along`` is."""
    if is_eager():
        if any(torch._C._functorch.is_legacy_batchedtensor(x) for x in along):
            return loop_over_batched_grads(lambda *v: covariance(engine, v), along)
        along = [checks.as_dense("gradient", x) for x in along]
    found: tuple[Tensor, ...] = Covariance(engine, *along).call()
    return found


def _refuse_third_derivatives() -> None:
    raise NotImplementedError(
        "log_partition: expected at most two derivatives, of marginals and entropy one;"
        " detach what needs no gradient"
    )


class Entropy(Op):
    """The entropy ``[B]``: ``A - <mu, theta>``."""

    def compute(self) -> Tensor:
        return self.engine.entropy()

    def fake_result(self) -> Tensor:
        first = self.engine.potentials[0]
        return first.new_empty((first.shape[0],))

    def backward(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[()]]:
        some = potentials_need_grad(ctx, len(self.engine.potentials))
        return weight_rows(
            -grad, self._slope(ctx), self.engine.num_row_potentials, some
        ), ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        slope = self._slope(ctx)
        along = _of_rows(tangents, slope, self.engine.num_row_potentials)
        return -_inner(slope, along).to(slope[0].dtype)

    def _slope(self, ctx: Any) -> tuple[Tensor, ...]:
        """``Cov(mu) theta``; a forbidden part has no chance, but must be finite."""
        engine = self.engine.with_tensors(ctx.saved_tensors)
        B = len(engine.potentials[0])
        theta = [
            x if i < engine.num_row_potentials else x.expand(B, *x.shape)
            for i, x in enumerate(engine.potentials)
        ]
        return covariance(engine, [zero_if_infinite(x) for x in theta])


class Best(Op):
    """The best output, or the k best: values, labels, and what ``score`` takes."""

    returns_tensor = False
    hi_lo: Tensor | None = None
    valid: Tensor | None = None

    def __init__(
        self, engine: Engine, k: int | None, dtype: torch.dtype, precise: bool = False
    ) -> None:
        self.engine, self.extra_tensors = engine, ()
        self.k, self.dtype, self.precise = k, dtype, precise

    @property
    def options(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.k or 0,)

    @classmethod
    def from_graph(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Best":
        return cls(engine, options[0] or None, FLOAT64)

    def compute(self) -> tuple[Tensor, ...]:
        values, labels, used, self.hi_lo, self.valid = self.engine.best(
            self.k, self.dtype, self.precise
        )
        return (values, labels) if used is None else (values, labels, used)

    def fake_result(self) -> tuple[Tensor, ...]:
        labels, *used = self.engine.empty_outputs(self.k)
        axes = 1 if self.k is None else 2
        first = self.engine.potentials[0]
        return first.new_empty(labels.shape[:axes], dtype=FLOAT64), labels, *used

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        # shapes of potentials are enough: these may change in place
        output = self.compute()
        self._keep(ctx, output)
        return output

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        self._keep(ctx, output, *tensors)

    def _keep(self, ctx: Any, output: Any, *tensors: Tensor) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[-1], *tensors)
        ctx.no_tangents = (None,) * (len(output) - 1)

    def _saved(self, ctx: Any) -> tuple[Engine, Tensor]:
        """The engine, and what the outputs ``[B, k, ...]`` use."""
        used, *tensors = ctx.saved_tensors
        engine = self.engine.with_tensors(tensors) if tensors else self.engine
        return engine, used.unsqueeze(1) if self.k is None else used

    def backward(
        self, ctx: Any, grad: Tensor | None, *_: None
    ) -> tuple[Sequence[Any], tuple[()]]:
        m = len(self.engine.potentials)
        if grad is None:
            return [None] * m, ()
        weights = grad.unsqueeze(1) if self.k is None else grad
        return count_parts(*self._saved(ctx), weights, potentials_need_grad(ctx, m)), ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        engine, used = self._saved(ctx)
        if self.k is None:
            moved = _score_along(engine, used, tangents, self.dtype)
        else:
            # an output that is not there takes the place of the first, and stays
            none = (used < 0).flatten(2).all(2)
            each = none.reshape(*none.shape, *[1] * (used.dim() - 2))
            used = torch.where(each, used[:, :1], used)
            moved = _score_along(engine, used, tangents, self.dtype)
            moved = moved.masked_fill(none, 0)
        return moved.squeeze(1) if self.k is None else moved, *ctx.no_tangents


class Score(Op):
    """Scores ``[B, k]`` of outputs: linear in the potentials."""

    hi_lo: Tensor | None = None

    def __init__(
        self, engine: Engine, used: Tensor, dtype: torch.dtype, two: bool = False
    ) -> None:
        self.engine, self.extra_tensors = engine, (used,)
        self.dtype, self.two = dtype, two

    @classmethod
    def from_graph(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Score":
        return cls(engine, about[0], FLOAT64)

    def compute(self) -> Tensor:
        value, self.hi_lo = self.engine.score(
            self.extra_tensors[0], self.dtype, self.two
        )
        return value

    def fake_result(self) -> Tensor:
        used = self.extra_tensors[0]
        return self.engine.potentials[0].new_empty(used.shape[:2], dtype=FLOAT64)

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        output = self.compute()
        ctx.save_for_backward(tensors[-1])
        return output

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        *others, used = tensors
        ctx.save_for_backward(used, *others)

    def _saved(self, ctx: Any) -> tuple[Engine, Tensor]:
        used, *tensors = ctx.saved_tensors
        return self.engine.with_tensors(tensors) if tensors else self.engine, used

    def backward(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[None]]:
        some = potentials_need_grad(ctx, len(self.engine.potentials))
        return count_parts(*self._saved(ctx), grad, some), (None,)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return _score_along(*self._saved(ctx), tangents, self.dtype)


class Samples(Op):
    """Labels of outputs drawn by random numbers, of which no gradient is known."""

    is_differentiable = False

    def compute(self) -> Tensor:
        return self.engine.sample(self.extra_tensors[0])

    def fake_result(self) -> Tensor:
        numbers = self.extra_tensors[0]
        labels, *_ = self.engine.empty_outputs(None)
        return labels.new_empty((*numbers.shape[:2], *labels.shape[1:]))


def count_parts(
    engine: Engine, used: Tensor, weights: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Weights ``[B, k]`` added up over the parts that outputs use, as ``Engine.count``.

    Differentiable in the weights.
    """
    weights = to_dtype(weights, engine.potentials[0].dtype)
    kind = weights.device.type
    once = not torch.is_grad_enabled() or (
        not weights.requires_grad and are_kernel_ready(engine.potentials)
    )
    if (
        once
        and engine.runs_kernels
        and is_eager_tensor(weights, kind)
        and is_eager_tensor(used, kind)
    ):
        return engine.count_parts(weights, used, wanted)
    return scatter_counts(engine, weights, used, wanted)


def _score_along(
    engine: Engine, used: Tensor, tangents: Sequence[Tensor | None], dtype: torch.dtype
) -> Tensor:
    """Tangents of scores are scores of tangents."""
    pairs = zip(tangents, engine.potentials, strict=False)
    along = [torch.zeros_like(x) if t is None else t for t, x in pairs]
    found: Tensor = Score(engine.with_tensors(along), used, dtype).call()
    return found


def _rows_like(engine: Engine) -> list[Tensor]:
    """Empty tensors ``[B, ...]`` for each of the potentials."""
    B = engine.potentials[0].shape[0]
    return [
        x.new_empty(x.shape if i < engine.num_row_potentials else (B, *x.shape))
        for i, x in enumerate(engine.potentials)
    ]


def _of_rows(
    given: Sequence[Tensor | None], like: Sequence[Tensor], own: int
) -> list[Tensor]:
    """Numbers of potentials as ``[B, ...]``, of the shapes of ``like``; 0 for None."""
    return [
        torch.zeros_like(x) if t is None else t if i < own else t.expand(x.shape)
        for i, (t, x) in enumerate(zip(given, like, strict=False))
    ]


def _inner(chances: Sequence[Tensor], along: Sequence[Tensor]) -> Tensor:
    """``<mu, along>`` of each row, ``[B]`` in float64."""
    pairs = zip(chances, along, strict=True)
    parts = [(p * v).flatten(1).sum(1, dtype=FLOAT64) for p, v in pairs]
    return torch.stack(parts).sum(0)


def zero_if_infinite(scores: Tensor) -> Tensor:
    """Scores, 0 where they are infinite, or NaN in the padding."""
    return torch.where(scores.abs() < torch.inf, scores, 0)
