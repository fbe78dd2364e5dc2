"""Ops of all structures: value, first and second derivative, tangent.

With the log-partition ``A(theta)`` over potentials theta,

    dA = <mu, d theta>                  mu are the marginals
    d mu = Cov(mu) d theta              Cov is the Hessian of A
    H = A - <mu, theta>,  dH = -<Cov(mu) theta, d theta>
    d max_y <theta, y> = <y*, d theta>  y* attains the maximum (Danskin)

A score is linear in the potentials; its adjoint counts the parts that outputs use.
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
    engine: Engine, dtype: torch.dtype, with_hi_lo: bool = False
) -> DoubleDouble:
    """Log-partition ``[B]``: log of the sum of exp(score) over outputs.

    Differentiable twice. Eager values have the dtype and, if ``with_hi_lo``, also the
    form of two numbers; traced ones are float64.
    """
    if engine.runs_kernels and is_eager():
        op = LogPartition(engine, dtype, with_hi_lo)
        return DoubleDouble(op.call_eager(), op.hi_lo)
    return DoubleDouble(Sums(engine).call()[0])


def marginals(engine: Engine) -> tuple[Tensor, ...]:
    """Marginal probability, or expected count, of each part: ``[B, ...]`` by potential.

    Differentiable once.
    """
    result: tuple[Tensor, ...] = Sums(engine).call()[1:]
    return result


def best(
    engine: Engine, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
) -> tuple[DoubleDouble, Tensor]:
    """Values and labels of the best outputs, as ``Engine.best`` returns them.

    Values have the dtype, or float64 while traced.
    """
    op = Best(engine, k, dtype, recheck_in_float64)
    results = op.call()
    return DoubleDouble(results[0], op.hi_lo), results[1]


def k_best(
    engine: Engine, k: int, dtype: torch.dtype
) -> tuple[DoubleDouble, Tensor, Tensor]:
    """Values, labels and validity ``[B, k]`` of the k best outputs."""
    op = Best(engine, k, dtype)
    results = op.call()
    values, valid = results[0], op.valid
    if valid is None:
        valid = values > -torch.inf
    return DoubleDouble(values, op.hi_lo), results[1], valid


def score(
    engine: Engine, used_parts: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
) -> DoubleDouble:
    """Scores ``[B, k]`` of outputs, as ``Engine.score`` returns them.

    In the dtype, or in float64 while traced.
    """
    op = Score(engine, used_parts, dtype, with_hi_lo)
    return DoubleDouble(op.call(), op.hi_lo)


def entropy(engine: Engine) -> Tensor:
    """Entropy ``[B]`` in nats; differentiable once."""
    result: Tensor = Entropy(engine).call()
    return result


def sample(engine: Engine, random_numbers: Tensor) -> Tensor:
    """Sampled labels ``[B, n, ...]`` of ``Engine.sample``."""
    result: Tensor = Samples(engine, random_numbers).call()
    return result


class LogPartition(Op):
    """The log-partition ``[B]`` of eager tensors.

    The marginals are not saved by autograd: the first backward pass may overwrite
    them, and a second pass computes them again.
    """

    hi_lo: Tensor | None = None

    def __init__(self, engine: Engine, dtype: torch.dtype, with_hi_lo: bool) -> None:
        self.engine, self.extra_tensors = engine, ()
        self.dtype, self.with_hi_lo = dtype, with_hi_lo

    def compute(self) -> Tensor:
        none = (False,) * len(self.engine.potentials)
        value, self.hi_lo, _ = self.engine.log_partition(
            none, self.dtype, self.with_hi_lo
        )
        return value

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Tensor:
        needs_grad = potentials_need_grad(ctx, len(tensors))
        value, self.hi_lo, ctx.marginals = self.engine.log_partition(
            needs_grad, self.dtype, self.with_hi_lo
        )
        ctx.save_for_backward(*tensors)
        return value

    def backward(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[()]]:
        # pop is atomic: of two threads, only one gets the buffer that vjp overwrites
        saved_marginals = vars(ctx).pop("marginals", None)
        tensors = ctx.saved_tensors
        needs_grad = potentials_need_grad(ctx, len(tensors))
        create_graph = torch.is_grad_enabled()
        if (
            saved_marginals is not None
            and not create_graph
            and is_eager_tensor(grad, grad.device.type)
        ):
            return self.engine.vjp(grad, saved_marginals, needs_grad), ()
        engine = self.engine.with_tensors(tensors)
        if create_graph:
            sums = Sums(engine)
            sums.precomputed = engine.saved_marginals(saved_marginals, needs_grad)
            marginals = sums.call()[1:]
        else:
            marginals = tuple(
                engine.log_partition_and_marginals(needs_grad, self.dtype)[2]
            )
        return weight_rows(grad, marginals, engine.num_row_potentials, needs_grad), ()


class Sums(Op):
    """The log-partition ``[B]``, and the marginals of all potentials.

    ``precomputed`` are marginals of a forward pass, which ``compute`` then returns.
    """

    returns_tensor = False
    precomputed: Sequence[Tensor] | None = None

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # eager callers use the marginals alone: None skips the value
        self.dtype = None

    @classmethod
    def from_graph(
        cls, engine: Engine, extra_tensors: Sequence[Tensor], options: Sequence[int]
    ) -> "Sums":
        op = cls(engine)
        op.dtype = FLOAT64
        return op

    def compute(self) -> tuple[Tensor, ...]:
        if self.precomputed is not None:
            return self.precomputed[0].new_empty(
                len(self.precomputed[0])
            ), *self.precomputed
        all_needed = (True,) * len(self.engine.potentials)
        value, _, marginals = self.engine.log_partition_and_marginals(
            all_needed, self.dtype
        )
        return value, *marginals

    def fake_result(self) -> tuple[Tensor, ...]:
        B = self.engine.potentials[0].shape[0]
        first = self.engine.potentials[0].new_empty((B,), dtype=FLOAT64)
        return first, *_empty_rows(self.engine)

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    def _saved_tensors(self, ctx: Any) -> tuple[Engine, tuple[Tensor, ...]]:
        saved, m = ctx.saved_tensors, len(self.engine.potentials)
        return self.engine.with_tensors(saved[:-m]), saved[-m:]

    def backward(
        self, ctx: Any, grad: Tensor | None, *marginal_tangents: Tensor | None
    ) -> tuple[Sequence[Any], tuple[()]]:
        engine, marginals = self._saved_tensors(ctx)
        needs_grad = potentials_need_grad(ctx, len(marginals))
        first = second = None
        if grad is not None:
            first = weight_rows(grad, marginals, engine.num_row_potentials, needs_grad)
        if any(x is not None for x in marginal_tangents):
            directions = [
                torch.zeros_like(x) if v is None else v
                for v, x in zip(marginal_tangents, marginals, strict=True)
            ]
            pairs = zip(covariance(engine, directions), needs_grad, strict=True)
            second = sum_shared(
                [x if is_needed else None for x, is_needed in pairs],
                engine.num_row_potentials,
            )
        if first is None or second is None:
            return first or second or [None] * len(marginals), ()
        both = zip(first, second, strict=True)
        return [None if a is None or b is None else a + b for a, b in both], ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        engine, marginals = self._saved_tensors(ctx)
        directions = _expand_to_rows(tangents, marginals, engine.num_row_potentials)
        return _inner_products(marginals, directions).to(self.dtype), *covariance(
            engine, directions
        )


class Covariance(Op):
    """``Cov(mu) v``, ``[B, ...]`` by potential, for directions v in ``extra_tensors``.

    Linear in v and symmetric, so the product is its own tangent and its own adjoint.
    """

    returns_tensor = False

    def compute(self) -> tuple[Tensor, ...]:
        return tuple(self.engine.covariance(self.extra_tensors))

    def fake_result(self) -> tuple[Tensor, ...]:
        return tuple(_empty_rows(self.engine))

    def backward(self, ctx: Any, *grads: Tensor) -> tuple[Sequence[Any], Sequence[Any]]:
        m = len(grads)
        if any(potentials_need_grad(ctx, m)):
            _raise_third_derivative()
        tangent = covariance(self.engine.with_tensors(ctx.saved_tensors), grads)
        return [None] * m, tangent

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        m = len(self.engine.potentials)
        if any(x is not None for x in tangents[:m]):
            _raise_third_derivative()
        engine = self.engine.with_tensors(ctx.saved_tensors)
        directions = _expand_to_rows(tangents[-m:], _empty_rows(engine), m)
        return covariance(engine, directions)


def covariance(engine: Engine, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """``Cov(mu) v``, ``[B, ...]`` by potential; v are the ``directions``."""
    if is_eager():
        if any(torch._C._functorch.is_legacy_batchedtensor(x) for x in directions):
            return loop_over_batched_grads(lambda *v: covariance(engine, v), directions)
        directions = [checks.as_dense("gradient", x) for x in directions]
    results: tuple[Tensor, ...] = Covariance(engine, *directions).call()
    return results


def _raise_third_derivative() -> None:
    raise NotImplementedError(
        "log_partition: expected at most two derivatives, of marginals and entropy one;"
        " detach what needs no gradient"
    )


class Entropy(Op):
    """Entropy ``[B]``: ``A - <mu, theta>``."""

    def compute(self) -> Tensor:
        return self.engine.entropy()

    def fake_result(self) -> Tensor:
        first = self.engine.potentials[0]
        return first.new_empty((first.shape[0],))

    def backward(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[()]]:
        needs_grad = potentials_need_grad(ctx, len(self.engine.potentials))
        return weight_rows(
            -grad,
            self._covariance_with_scores(ctx),
            self.engine.num_row_potentials,
            needs_grad,
        ), ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        slope = self._covariance_with_scores(ctx)
        directions = _expand_to_rows(tangents, slope, self.engine.num_row_potentials)
        return -_inner_products(slope, directions).to(slope[0].dtype)

    def _covariance_with_scores(self, ctx: Any) -> tuple[Tensor, ...]:
        """``Cov(mu) theta``, with 0 for -inf in theta.

        A forbidden part has probability 0, but 0 times -inf would be NaN.
        """
        engine = self.engine.with_tensors(ctx.saved_tensors)
        B = len(engine.potentials[0])
        theta = [
            x if i < engine.num_row_potentials else x.expand(B, *x.shape)
            for i, x in enumerate(engine.potentials)
        ]
        return covariance(engine, [zero_if_infinite(x) for x in theta])


class Best(Op):
    """Values, labels and, if they differ, used parts of the best output or k best."""

    returns_tensor = False
    hi_lo: Tensor | None = None
    valid: Tensor | None = None

    def __init__(
        self,
        engine: Engine,
        k: int | None,
        dtype: torch.dtype,
        recheck_in_float64: bool = False,
    ) -> None:
        self.engine, self.extra_tensors = engine, ()
        self.k, self.dtype, self.recheck_in_float64 = k, dtype, recheck_in_float64

    @property
    def options(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.k or 0,)

    @classmethod
    def from_graph(
        cls, engine: Engine, extra_tensors: Sequence[Tensor], options: Sequence[int]
    ) -> "Best":
        return cls(engine, options[0] or None, FLOAT64)

    def compute(self) -> tuple[Tensor, ...]:
        values, labels, used_parts, self.hi_lo, self.valid = self.engine.best(
            self.k, self.dtype, self.recheck_in_float64
        )
        return (values, labels) if used_parts is None else (values, labels, used_parts)

    def fake_result(self) -> tuple[Tensor, ...]:
        labels, *used_parts = self.engine.empty_outputs(self.k)
        axes = 1 if self.k is None else 2
        first = self.engine.potentials[0]
        return first.new_empty(labels.shape[:axes], dtype=FLOAT64), labels, *used_parts

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        # backward needs shapes only: unsaved, potentials may change in place
        output = self.compute()
        self._save_for_derivatives(ctx, output)
        return output

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        self._save_for_derivatives(ctx, output, *tensors)

    def _save_for_derivatives(self, ctx: Any, output: Any, *tensors: Tensor) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[-1], *tensors)
        ctx.no_tangents = (None,) * (len(output) - 1)

    def _saved_tensors(self, ctx: Any) -> tuple[Engine, Tensor]:
        """The engine, and the used parts ``[B, k, ...]`` of the outputs."""
        used_parts, *tensors = ctx.saved_tensors
        engine = self.engine.with_tensors(tensors) if tensors else self.engine
        return engine, used_parts.unsqueeze(1) if self.k is None else used_parts

    def backward(
        self, ctx: Any, grad: Tensor | None, *_: None
    ) -> tuple[Sequence[Any], tuple[()]]:
        m = len(self.engine.potentials)
        if grad is None:
            return [None] * m, ()
        weights = grad.unsqueeze(1) if self.k is None else grad
        return count_parts(
            *self._saved_tensors(ctx), weights, potentials_need_grad(ctx, m)
        ), ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        engine, used_parts = self._saved_tensors(ctx)
        if self.k is None:
            tangent = _score_jvp(engine, used_parts, tangents, self.dtype)
        else:
            # padding scores like the first output, and its tangent becomes 0
            none = (used_parts < 0).flatten(2).all(2)
            each = none.reshape(*none.shape, *[1] * (used_parts.dim() - 2))
            used_parts = torch.where(each, used_parts[:, :1], used_parts)
            tangent = _score_jvp(engine, used_parts, tangents, self.dtype)
            tangent = tangent.masked_fill(none, 0)
        return tangent.squeeze(1) if self.k is None else tangent, *ctx.no_tangents


class Score(Op):
    """Scores ``[B, k]`` of outputs, linear in the potentials."""

    hi_lo: Tensor | None = None

    def __init__(
        self,
        engine: Engine,
        used_parts: Tensor,
        dtype: torch.dtype,
        with_hi_lo: bool = False,
    ) -> None:
        self.engine, self.extra_tensors = engine, (used_parts,)
        self.dtype, self.with_hi_lo = dtype, with_hi_lo

    @classmethod
    def from_graph(
        cls, engine: Engine, extra_tensors: Sequence[Tensor], options: Sequence[int]
    ) -> "Score":
        return cls(engine, extra_tensors[0], FLOAT64)

    def compute(self) -> Tensor:
        value, self.hi_lo = self.engine.score(
            self.extra_tensors[0], self.dtype, self.with_hi_lo
        )
        return value

    def fake_result(self) -> Tensor:
        used_parts = self.extra_tensors[0]
        return self.engine.potentials[0].new_empty(used_parts.shape[:2], dtype=FLOAT64)

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        output = self.compute()
        ctx.save_for_backward(tensors[-1])
        return output

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        *others, used_parts = tensors
        ctx.save_for_backward(used_parts, *others)

    def _saved_tensors(self, ctx: Any) -> tuple[Engine, Tensor]:
        used_parts, *tensors = ctx.saved_tensors
        return self.engine.with_tensors(tensors) if tensors else self.engine, used_parts

    def backward(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[None]]:
        needs_grad = potentials_need_grad(ctx, len(self.engine.potentials))
        return count_parts(*self._saved_tensors(ctx), grad, needs_grad), (None,)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return _score_jvp(*self._saved_tensors(ctx), tangents, self.dtype)


class Samples(Op):
    """Sampled labels: piecewise constant in the potentials, so without gradient."""

    is_differentiable = False

    def compute(self) -> Tensor:
        return self.engine.sample(self.extra_tensors[0])

    def fake_result(self) -> Tensor:
        random_numbers = self.extra_tensors[0]
        labels, *_ = self.engine.empty_outputs(None)
        return labels.new_empty((*random_numbers.shape[:2], *labels.shape[1:]))


def count_parts(
    engine: Engine, used_parts: Tensor, weights: Tensor, needs_grad: Sequence[bool]
) -> list[Tensor | None]:
    """Sum the weights ``[B, k]`` over parts, as ``Engine.count_parts``.

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
        and is_eager_tensor(used_parts, kind)
    ):
        return engine.count_parts(weights, used_parts, needs_grad)
    return scatter_counts(engine, weights, used_parts, needs_grad)


def _score_jvp(
    engine: Engine,
    used_parts: Tensor,
    tangents: Sequence[Tensor | None],
    dtype: torch.dtype,
) -> Tensor:
    """Tangents ``[B, k]`` of scores: scores under the tangents of the potentials."""
    pairs = zip(tangents, engine.potentials, strict=False)
    directions = [torch.zeros_like(x) if t is None else t for t, x in pairs]
    result: Tensor = Score(engine.with_tensors(directions), used_parts, dtype).call()
    return result


def _empty_rows(engine: Engine) -> list[Tensor]:
    """Empty tensors ``[B, ...]``, one for each of the potentials."""
    B = engine.potentials[0].shape[0]
    return [
        x.new_empty(x.shape if i < engine.num_row_potentials else (B, *x.shape))
        for i, x in enumerate(engine.potentials)
    ]


def _expand_to_rows(
    tangents: Sequence[Tensor | None], like: Sequence[Tensor], num_row_potentials: int
) -> list[Tensor]:
    """Expand tangents to the shapes ``[B, ...]`` of ``like``; None becomes 0."""
    return [
        torch.zeros_like(x)
        if t is None
        else t
        if i < num_row_potentials
        else t.expand(x.shape)
        for i, (t, x) in enumerate(zip(tangents, like, strict=False))
    ]


def _inner_products(
    marginals: Sequence[Tensor], directions: Sequence[Tensor]
) -> Tensor:
    """``<mu, v>`` of each row, ``[B]`` in float64, with v the ``directions``."""
    pairs = zip(marginals, directions, strict=True)
    parts = [(p * v).flatten(1).sum(1, dtype=FLOAT64) for p, v in pairs]
    return torch.stack(parts).sum(0)


def zero_if_infinite(scores: Tensor) -> Tensor:
    """Replace infinite scores, and NaN in the padding, by 0."""
    return torch.where(scores.abs() < torch.inf, scores, 0)
