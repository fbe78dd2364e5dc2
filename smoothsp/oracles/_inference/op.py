"""The ways that lead from a question to its answer and its gradient.

Plain tensors go straight to the kernels of an engine, through ``EagerGradient`` where a
gradient is wanted. ``torch.compile`` and everything else that traces see one op,
``smoothsp::ask``. The transforms of ``torch.func`` and forward derivatives go through
``Transformed``. The rules for derivatives, in ``rules``, are the same for all.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from smoothsp.oracles._inference.engine import Engine
from smoothsp.oracles._inference.tracing import (
    is_dense_cpu,
    is_eager,
    is_eager_tensor,
    is_transformed,
    num_dispatch_modes,
)
from smoothsp.oracles._inference.transforms import TransformedOp

NO_TRANSFORMS = (
    "torch.func: expected no transform inside torch.compile(fullgraph=True); call "
    "torch.compile(loss, fullgraph=True) and torch.autograd.grad, or torch.func.grad "
    "without torch.compile"
)

Self = TypeVar("Self", bound="Op")
# Gradients of all potentials from that of the value, where they are wanted.
Gradients = Callable[[Tensor, Sequence[bool]], Sequence[Tensor | None]]


class Op:
    """A question to an engine, about tensors that have an entry for each row.

    A subclass defines ``answer`` and ``shapes``, and ``gradient`` and ``tangent`` if
    the answer has a derivative. Values are looked at in ``answer`` alone: it is the
    only one that always gets tensors that have any.

    Parameters
    ----------
    engine
        What answers.
    about
        Further tensors ``[B, ...]``.
    """

    # Of a value: float64 while something traces, so that differences keep digits.
    dtype: Any
    # Arguments besides tensors, which a compiled graph keeps.
    options: tuple[int, ...] = ()
    is_differentiable: ClassVar[bool] = True
    # Whether the answer is one tensor.
    returns_tensor: ClassVar[bool] = True
    # Questions by name, for compiled graphs.
    registry: ClassVar[dict[str, type["Op"]]] = {}

    def __init__(self, engine: Engine, *about: Tensor) -> None:
        self.engine, self.extra_tensors = engine, about

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Op.registry[cls.__name__] = cls

    def compute(self) -> Any:
        """The answer of the engine: a tensor ``[B, ...]``, or a tuple of them."""
        raise NotImplementedError

    def fake_result(self) -> Any:
        """Empty tensors of the shapes of the answer."""
        raise NotImplementedError

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        """Keep in ``ctx`` what ``gradient`` and ``tangent`` need.

        ``tensors`` are potentials, perhaps ``engine.row_attributes``, and ``about``.
        """
        ctx.save_for_backward(*self._of_engine(tensors))

    def backward(self, ctx: Any, *grads: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """Gradients of the potentials, and of ``about``, from those of the answer."""
        raise NotImplementedError

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        """Tangents of the answer from those of the potentials and of ``about``."""
        raise NotImplementedError

    # What follows ---------------------------------------------------------------

    def call(self) -> Any:
        """The answer; gradients reach the potentials."""
        engine, about = self.engine, self.extra_tensors
        if (
            engine.runs_kernels
            and is_eager()
            and (not about or are_kernel_ready(about))
        ):
            return self.call_eager()
        self.dtype = torch.float64
        tensors = (*engine.potentials, *engine.row_attributes, *about)
        if not is_transformed():
            return self.call_in_graph(*tensors)
        if torch.compiler.is_compiling():
            # without fullgraph=True, Dynamo calls this function again, not compiling
            raise TypeError(NO_TRANSFORMS)
        return TransformedOp.apply(self, *tensors)

    def call_eager(self) -> Any:
        """The answer where nothing traces."""
        tensors = self.engine.potentials
        if self.extra_tensors:
            tensors = (*tensors, *self.extra_tensors)
        if self.is_differentiable and any_requires_grad(tensors):
            return EagerFunction.apply(self, *tensors)
        return self.compute()

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        """The answer, and in ``ctx`` what its gradient takes."""
        output = self.compute()
        self.save(ctx, tensors, output)
        return output

    def _of_engine(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[: len(tensors) - len(self.extra_tensors)]

    def with_tensors(self: Self, tensors: Sequence[Tensor]) -> Self:
        """Return the same question about other tensors."""
        other = copy.copy(self)
        n = len(tensors) - len(self.extra_tensors)
        other.engine, other.extra_tensors = (
            self.engine.with_tensors(tensors[:n]),
            tuple(tensors[n:]),
        )
        return other

    def op(self, *tensors: Tensor) -> Any:
        """The answer for tensors that no transform has wrapped."""
        if torch.compiler.is_compiling() or num_dispatch_modes():
            return self.call_in_graph(*tensors)
        return self.with_tensors(tensors).compute()

    def with_repeated_rows(self: Self, size: int) -> Self:
        """The question of batches so many times as large, one after the other."""
        other = copy.copy(self)
        other.engine = self.engine.with_repeated_rows(size)
        return other

    def is_batched(self, count: int) -> list[bool]:
        """Whether each of the tensors has an entry for each row."""
        first, last = self.engine.num_row_potentials, len(self.engine.potentials)
        return [not first <= i < last for i in range(count)]

    def call_in_graph(self, *tensors: Tensor) -> Any:
        """The answer as a node of a graph."""
        found = graph_op(*self.graph_args(*tensors))
        return found[0] if self.returns_tensor else tuple(found)

    def graph_args(self, *tensors: Tensor) -> tuple[str, str, list[int], list[Tensor]]:
        """Arguments of the op that stands for the question in a graph."""
        name = self.engine.name
        if name is None:
            raise TypeError(
                "potentials: expected tensors with values, got some that something "
                "traces; for torch.compile, make the structure inside the function"
            )
        return (
            type(self).__name__,
            name,
            [len(self.extra_tensors), *self.options],
            list(tensors),
        )

    @classmethod
    def from_graph(
        cls, engine: Engine, about: Sequence[Tensor], options: Sequence[int]
    ) -> "Op":
        """The question that a graph kept."""
        return cls(engine, *about)


class EagerFunction(torch.autograd.Function):
    """Autograd function of a question about plain tensors."""

    # Not setup_context, for which PyTorch inspects the signature at every call.
    @staticmethod
    def forward(ctx: Any, question: Any, *tensors: Any) -> Any:
        ctx.question = question
        return question.forward(ctx, tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        potentials, about = ctx.question.backward(ctx, *grads)
        return None, *potentials, *about


def are_kernel_ready(tensors: Sequence[Tensor]) -> bool:
    """Whether kernels of their devices may read the tensors; nothing traces."""
    for x in tensors:  # noqa: SIM110 - a generator takes a microsecond
        if not (is_dense_cpu(x) or is_eager_tensor(x, "cuda")):
            return False
    return True


def any_requires_grad(tensors: Sequence[Tensor]) -> bool:
    """Whether a gradient is wanted of any of them."""
    if not torch.is_grad_enabled():
        return False
    for x in tensors:  # noqa: SIM110 - a generator takes a microsecond
        if x.requires_grad:
            return True
    return False


def potentials_need_grad(ctx: Any, count: int) -> Sequence[bool]:
    """Whether each of the potentials, which come first, needs a gradient."""
    needs = ctx.needs_input_grad
    # the op has them in one list
    if isinstance(needs[-1], list | tuple):
        return needs[-1][:count]
    found: Sequence[bool] = needs[1 : 1 + count]
    return found


class Recomputation(NamedTuple):
    """A value by differentiable questions, and what these read besides potentials."""

    value: Callable[[], Tensor]
    reads: tuple[object, ...]


class FusedNode:
    """A value and its gradient, computed together: one node of a graph.

    Parameters
    ----------
    value
        Any shape; without a gradient.
    gradients
        Of the potentials. Each backward pass calls it: equal calls give equal bits.
    again
        Of the value, for higher derivatives. Nobody may change the tensors that it
        reads before a second pass.
    """

    def __init__(
        self, value: Tensor, gradients: Gradients, again: Recomputation
    ) -> None:
        self.value, self.gradients, self.again = value, gradients, again

    def attach(self, potentials: Sequence[Tensor]) -> Tensor:
        """The value; gradients reach the potentials."""
        if not any_requires_grad(potentials):
            return self.value
        found: Tensor = EagerFunction.apply(self, *potentials)
        return found

    def forward(self, ctx: Any, potentials: tuple[Tensor, ...]) -> Tensor:
        reads = [x for x in self.again.reads if isinstance(x, Tensor)]
        # those of inference mode cannot be saved, nor changed outside of it
        ctx.save_for_backward(*potentials, *[x for x in reads if not x.is_inference()])
        ctx.passes = 0
        # no longer needed, and part of the graph from now on
        value: Tensor = vars(self).pop("value")
        return value

    def backward(
        self, ctx: Any, grad: Tensor
    ) -> tuple[Sequence[Tensor | None], tuple[()]]:
        higher = torch.is_grad_enabled()
        if not higher and is_eager_tensor(grad, "cpu"):
            # the first pass needs no potentials, which may have changed in place
            if ctx.passes:
                _ = ctx.saved_tensors
            ctx.passes += 1
            return self.gradients(grad, ctx.needs_input_grad[1:]), ()
        some = ctx.needs_input_grad[1:]
        potentials = ctx.saved_tensors[: len(some)]
        with torch.enable_grad():
            value = self.again.value()
        wanted = [x for x, want in zip(potentials, some, strict=True) if want]
        found = iter(
            torch.autograd.grad(
                value, wanted, grad, create_graph=higher, allow_unused=True
            )
        )
        return [next(found) if want else None for want in some], ()


# What makes the engine of a graph of its tensors, by name.
ENGINE_BUILDERS: dict[str, Callable[[Sequence[Tensor]], Engine]] = {}


def _question(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> Op:
    """The question that a node of a graph stands for."""
    about, *options = sizes
    count = len(tensors) - about
    found = ENGINE_BUILDERS[engine](tensors[:count])
    return Op.registry[name].from_graph(found, tensors[count:], options)


def _answer(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> list[Tensor]:
    found = _question(name, engine, sizes, tensors).compute()
    listed = list(found) if isinstance(found, tuple) else [found]
    given = {x.data_ptr() for x in tensors if x.numel()}
    # an answer may not share the memory of an input
    return [x.clone() if x.numel() and x.data_ptr() in given else x for x in listed]


def _shapes(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> list[Tensor]:
    found = _question(name, engine, sizes, tensors).fake_result()
    return list(found) if isinstance(found, tuple) else [found]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *_, tensors = inputs
    question = ctx.question = _question(*inputs)
    ctx.count_parts = len(tensors)
    question.save(
        ctx, tuple(tensors), output[0] if question.returns_tensor else tuple(output)
    )


def _gradient(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    question = ctx.question
    if not question.is_differentiable:
        return None, None, None, [None] * ctx.count_parts
    potentials, about = question.backward(ctx, *grads)
    rest = ctx.count_parts - len(potentials) - len(about)
    return None, None, None, [*potentials, *[None] * rest, *about]


graph_op = torch.library.custom_op(
    "smoothsp::ask",
    _answer,
    mutates_args=(),
    schema="(str question, str engine, SymInt[] sizes, Tensor[] tensors) -> Tensor[]",
)
graph_op.register_fake(_shapes)
graph_op.register_autograd(_gradient, setup_context=_save)
