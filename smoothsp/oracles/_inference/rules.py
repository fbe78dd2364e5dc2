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
from smoothsp.oracles._inference.double_double import Exact, in_dtype
from smoothsp.oracles._inference.engine import (
    Engine,
    counted,
    over_rows,
    weighed,
)
from smoothsp.oracles._inference.op import Question, are_plain, needs_gradient
from smoothsp.oracles._inference.tracing import (
    is_eager,
    is_eager_tensor,
)
from smoothsp.oracles._inference.transforms import one_after_another

FLOAT64 = torch.float64


def log_partition(engine: Engine, dtype: torch.dtype, two: bool = False) -> Exact:
    """Logarithm of the sum over all outputs ``[B]``; differentiable twice.

    Of the dtype, or of float64 while something traces. With ``two`` as two numbers,
    too, where nothing traces.
    """
    if engine.direct and is_eager():
        question = LogPartition(engine, dtype, two)
        return Exact(question.ask_directly(), question.two_numbers)
    return Exact(Sums(engine).ask()[0])


def marginals(engine: Engine) -> tuple[Tensor, ...]:
    """Chance of each part, or its mean number of uses, ``[B, ...]`` by potentials.

    Differentiable once.
    """
    found: tuple[Tensor, ...] = Sums(engine).ask()[1:]
    return found


def best(
    engine: Engine, k: int | None, dtype: torch.dtype, precise: bool = False
) -> tuple[Exact, Tensor]:
    """Values and labels of the best outputs, as ``Engine.best`` has them.

    Of the dtype, or of float64 while something traces.
    """
    question = Best(engine, k, dtype, precise)
    found = question.ask()
    return Exact(found[0], question.two_numbers), found[1]


def k_best(engine: Engine, k: int, dtype: torch.dtype) -> tuple[Exact, Tensor, Tensor]:
    """Return ``best``, and which of the k outputs there are ``[B, k]``."""
    question = Best(engine, k, dtype)
    found = question.ask()
    values, exist = found[0], question.exist
    if exist is None:
        exist = values > -torch.inf
    return Exact(values, question.two_numbers), found[1], exist


def score(engine: Engine, used: Tensor, dtype: torch.dtype, two: bool = False) -> Exact:
    """Scores ``[B, k]`` of outputs, as ``Engine.score`` has them.

    Of the dtype, or of float64 while something traces.
    """
    question = Score(engine, used, dtype, two)
    return Exact(question.ask(), question.two_numbers)


def entropy(engine: Engine) -> Tensor:
    """Entropy ``[B]`` of the outputs; differentiable once."""
    found: Tensor = Entropy(engine).ask()
    return found


def sample(engine: Engine, numbers: Tensor) -> Tensor:
    """Labels ``[B, n, ...]``, as ``Engine.sample`` draws them."""
    found: Tensor = Samples(engine, numbers).ask()
    return found


class LogPartition(Question):
    """The log-partition ``[B]`` of plain tensors.

    Its marginals are no tensors of the graph: the first gradient may overwrite them.
    """

    two_numbers: Tensor | None = None

    def __init__(self, engine: Engine, dtype: torch.dtype, two: bool) -> None:
        self.engine, self.about = engine, ()
        self.dtype, self.two = dtype, two

    def answer(self) -> Tensor:
        none = (False,) * len(self.engine.potentials)
        value, self.two_numbers, _ = self.engine.log_partition(
            none, self.dtype, self.two
        )
        return value

    def begin(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Tensor:
        some = needs_gradient(ctx, len(tensors))
        value, self.two_numbers, ctx.marginals = self.engine.log_partition(
            some, self.dtype, self.two
        )
        ctx.save_for_backward(*tensors)
        return value

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[()]]:
        # one step, so that no other thread gets them too
        known = vars(ctx).pop("marginals", None)
        tensors = ctx.saved_tensors
        some = needs_gradient(ctx, len(tensors))
        again = torch.is_grad_enabled()
        if known is not None and not again and is_eager_tensor(grad, grad.device.type):
            return self.engine.weigh(grad, known, some), ()
        engine = self.engine.of(tensors)
        if again:
            sums = Sums(engine)
            sums.known = engine.marginals_of(known, some)
            found = sums.ask()[1:]
        else:
            found = tuple(engine.sums(some, self.dtype)[2])
        return weighed(grad, found, engine.own, some), ()


class Sums(Question):
    """The log-partition ``[B]``, and the marginals of all potentials.

    ``known`` are the marginals, where they are.
    """

    single = False
    known: Sequence[Tensor] | None = None

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # where nothing traces only the marginals are asked for
        self.dtype = None

    @classmethod
    def with_options(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Sums":
        question = cls(engine)
        question.dtype = FLOAT64
        return question

    def answer(self) -> tuple[Tensor, ...]:
        if self.known is not None:
            return self.known[0].new_empty(len(self.known[0])), *self.known
        every = (True,) * len(self.engine.potentials)
        value, _, found = self.engine.sums(every, self.dtype)
        return value, *found

    def shapes(self) -> tuple[Tensor, ...]:
        B = self.engine.potentials[0].shape[0]
        first = self.engine.potentials[0].new_empty((B,), dtype=FLOAT64)
        return first, *_rows_like(self.engine)

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    def _saved(self, ctx: Any) -> tuple[Engine, tuple[Tensor, ...]]:
        saved, m = ctx.saved_tensors, len(self.engine.potentials)
        return self.engine.of(saved[:-m]), saved[-m:]

    def gradient(
        self, ctx: Any, grad: Tensor | None, *moves: Tensor | None
    ) -> tuple[Sequence[Any], tuple[()]]:
        engine, chances = self._saved(ctx)
        some = needs_gradient(ctx, len(chances))
        first = second = None
        if grad is not None:
            first = weighed(grad, chances, engine.own, some)
        if any(x is not None for x in moves):
            along = [
                torch.zeros_like(x) if v is None else v
                for v, x in zip(moves, chances, strict=True)
            ]
            pairs = zip(covariance(engine, along), some, strict=True)
            second = over_rows([x if want else None for x, want in pairs], engine.own)
        if first is None or second is None:
            return first or second or [None] * len(chances), ()
        both = zip(first, second, strict=True)
        return [None if a is None or b is None else a + b for a, b in both], ()

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        engine, chances = self._saved(ctx)
        along = _of_rows(tangents, chances, engine.own)
        return _inner(chances, along).to(self.dtype), *covariance(engine, along)


class Covariance(Question):
    """``Cov(mu) along``, ``[B, ...]`` by potentials: linear and symmetric in along."""

    single = False

    def answer(self) -> tuple[Tensor, ...]:
        return tuple(self.engine.covariance(self.about))

    def shapes(self) -> tuple[Tensor, ...]:
        return tuple(_rows_like(self.engine))

    def gradient(self, ctx: Any, *grads: Tensor) -> tuple[Sequence[Any], Sequence[Any]]:
        m = len(grads)
        if any(needs_gradient(ctx, m)):
            _refuse_third_derivatives()
        moved = covariance(self.engine.of(ctx.saved_tensors), grads)
        return [None] * m, moved

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Any:
        m = len(self.engine.potentials)
        if any(x is not None for x in tangents[:m]):
            _refuse_third_derivatives()
        engine = self.engine.of(ctx.saved_tensors)
        along = _of_rows(tangents[-m:], _rows_like(engine), m)
        return covariance(engine, along)


def covariance(engine: Engine, along: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """``Cov(mu) along`` by potentials, ``[B, ...]``, as ``along`` is."""
    if is_eager():
        if any(torch._C._functorch.is_legacy_batchedtensor(x) for x in along):
            return one_after_another(lambda *v: covariance(engine, v), along)
        along = [checks.dense("gradient", x) for x in along]
    found: tuple[Tensor, ...] = Covariance(engine, *along).ask()
    return found


def _refuse_third_derivatives() -> None:
    raise NotImplementedError(
        "log_partition: expected at most two derivatives, of marginals and entropy one;"
        " detach what needs no gradient"
    )


class Entropy(Question):
    """The entropy ``[B]``: ``A - <mu, theta>``."""

    def answer(self) -> Tensor:
        return self.engine.entropy()

    def shapes(self) -> Tensor:
        first = self.engine.potentials[0]
        return first.new_empty((first.shape[0],))

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[()]]:
        some = needs_gradient(ctx, len(self.engine.potentials))
        return weighed(-grad, self._slope(ctx), self.engine.own, some), ()

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        slope = self._slope(ctx)
        along = _of_rows(tangents, slope, self.engine.own)
        return -_inner(slope, along).to(slope[0].dtype)

    def _slope(self, ctx: Any) -> tuple[Tensor, ...]:
        """``Cov(mu) theta``; a forbidden part has no chance, but must be finite."""
        engine = self.engine.of(ctx.saved_tensors)
        B = len(engine.potentials[0])
        theta = [
            x if i < engine.own else x.expand(B, *x.shape)
            for i, x in enumerate(engine.potentials)
        ]
        return covariance(engine, [finite(x) for x in theta])


class Best(Question):
    """The best output, or the k best: values, labels, and what ``score`` takes."""

    single = False
    two_numbers: Tensor | None = None
    exist: Tensor | None = None

    def __init__(
        self, engine: Engine, k: int | None, dtype: torch.dtype, precise: bool = False
    ) -> None:
        self.engine, self.about = engine, ()
        self.k, self.dtype, self.precise = k, dtype, precise

    @property
    def options(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.k or 0,)

    @classmethod
    def with_options(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Best":
        return cls(engine, options[0] or None, FLOAT64)

    def answer(self) -> tuple[Tensor, ...]:
        values, labels, used, self.two_numbers, self.exist = self.engine.best(
            self.k, self.dtype, self.precise
        )
        return (values, labels) if used is None else (values, labels, used)

    def shapes(self) -> tuple[Tensor, ...]:
        labels, *used = self.engine.outputs_like(self.k)
        axes = 1 if self.k is None else 2
        first = self.engine.potentials[0]
        return first.new_empty(labels.shape[:axes], dtype=FLOAT64), labels, *used

    def begin(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        # shapes of potentials are enough: these may change in place
        output = self.answer()
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
        engine = self.engine.of(tensors) if tensors else self.engine
        return engine, used.unsqueeze(1) if self.k is None else used

    def gradient(
        self, ctx: Any, grad: Tensor | None, *_: None
    ) -> tuple[Sequence[Any], tuple[()]]:
        m = len(self.engine.potentials)
        if grad is None:
            return [None] * m, ()
        weights = grad.unsqueeze(1) if self.k is None else grad
        return count(*self._saved(ctx), weights, needs_gradient(ctx, m)), ()

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Any:
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


class Score(Question):
    """Scores ``[B, k]`` of outputs: linear in the potentials."""

    two_numbers: Tensor | None = None

    def __init__(
        self, engine: Engine, used: Tensor, dtype: torch.dtype, two: bool = False
    ) -> None:
        self.engine, self.about = engine, (used,)
        self.dtype, self.two = dtype, two

    @classmethod
    def with_options(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Score":
        return cls(engine, about[0], FLOAT64)

    def answer(self) -> Tensor:
        value, self.two_numbers = self.engine.score(self.about[0], self.dtype, self.two)
        return value

    def shapes(self) -> Tensor:
        used = self.about[0]
        return self.engine.potentials[0].new_empty(used.shape[:2], dtype=FLOAT64)

    def begin(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        output = self.answer()
        ctx.save_for_backward(tensors[-1])
        return output

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        *others, used = tensors
        ctx.save_for_backward(used, *others)

    def _saved(self, ctx: Any) -> tuple[Engine, Tensor]:
        used, *tensors = ctx.saved_tensors
        return self.engine.of(tensors) if tensors else self.engine, used

    def gradient(self, ctx: Any, grad: Tensor) -> tuple[Sequence[Any], tuple[None]]:
        some = needs_gradient(ctx, len(self.engine.potentials))
        return count(*self._saved(ctx), grad, some), (None,)

    def tangent(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return _score_along(*self._saved(ctx), tangents, self.dtype)


class Samples(Question):
    """Labels of outputs drawn by random numbers, of which no gradient is known."""

    has_gradient = False

    def answer(self) -> Tensor:
        return self.engine.sample(self.about[0])

    def shapes(self) -> Tensor:
        numbers = self.about[0]
        labels, *_ = self.engine.outputs_like(None)
        return labels.new_empty((*numbers.shape[:2], *labels.shape[1:]))


def count(
    engine: Engine, used: Tensor, weights: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Weights ``[B, k]`` added up over the parts that outputs use, as ``Engine.count``.

    Differentiable in the weights.
    """
    weights = in_dtype(weights, engine.potentials[0].dtype)
    kind = weights.device.type
    once = not torch.is_grad_enabled() or (
        not weights.requires_grad and are_plain(engine.potentials)
    )
    if (
        once
        and engine.direct
        and is_eager_tensor(weights, kind)
        and is_eager_tensor(used, kind)
    ):
        return engine.count(weights, used, wanted)
    return counted(engine, weights, used, wanted)


def _score_along(
    engine: Engine, used: Tensor, tangents: Sequence[Tensor | None], dtype: torch.dtype
) -> Tensor:
    """Tangents of scores are scores of tangents."""
    pairs = zip(tangents, engine.potentials, strict=False)
    along = [torch.zeros_like(x) if t is None else t for t, x in pairs]
    found: Tensor = Score(engine.of(along), used, dtype).ask()
    return found


def _rows_like(engine: Engine) -> list[Tensor]:
    """Empty tensors ``[B, ...]`` for each of the potentials."""
    B = engine.potentials[0].shape[0]
    return [
        x.new_empty(x.shape if i < engine.own else (B, *x.shape))
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


def finite(scores: Tensor) -> Tensor:
    """Scores, 0 where they are infinite, or NaN in the padding."""
    return torch.where(scores.abs() < torch.inf, scores, 0)
