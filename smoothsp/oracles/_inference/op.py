"""Dispatch of ops: eager autograd, nodes of graphs, and transforms of torch.func.

Eager tensors go straight to the kernels of an engine, through ``EagerFunction`` if a
gradient is needed. ``torch.compile`` and other tracers record one op,
``smoothsp::ask``. The transforms of ``torch.func`` and forward differentiation go
through ``TransformedOp``. All three use the derivatives in ``rules``.
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

NO_TRANSFORMS_MESSAGE = (
    "torch.func: expected no transform inside torch.compile(fullgraph=True); call "
    "torch.compile(loss, fullgraph=True) and torch.autograd.grad, or torch.func.grad "
    "without torch.compile"
)

Self = TypeVar("Self", bound="Op")
# (gradient of the value, needs_grad) -> gradients of the potentials, None if unneeded.
Gradients = Callable[[Tensor, Sequence[bool]], Sequence[Tensor | None]]


class Op:
    """A function of the potentials of an engine and of further tensors.

    A subclass defines ``compute`` and ``fake_result``, and ``backward`` and ``jvp`` if
    the result has a derivative. Only ``compute`` may read values: the other methods
    also run on fake and wrapped tensors.

    Parameters
    ----------
    engine
        Engine whose kernels compute the result.
    extra_tensors
        Further tensors ``[B, ...]``.
    """

    # Of values: float64 while traced, where no second number keeps lost digits.
    dtype: Any
    # Integer arguments, which a compiled graph keeps.
    options: tuple[int, ...] = ()
    is_differentiable: ClassVar[bool] = True
    # Whether the result is one tensor, not a tuple.
    returns_tensor: ClassVar[bool] = True
    # Subclasses by name, for compiled graphs.
    registry: ClassVar[dict[str, type["Op"]]] = {}

    def __init__(self, engine: Engine, *extra_tensors: Tensor) -> None:
        self.engine, self.extra_tensors = engine, extra_tensors

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Op.registry[cls.__name__] = cls

    def compute(self) -> Any:
        """Compute the result by kernels: a tensor ``[B, ...]``, or a tuple of them."""
        raise NotImplementedError

    def fake_result(self) -> Any:
        """Empty tensors with the shapes and dtypes of the result."""
        raise NotImplementedError

    def save(self, ctx: Any, tensors: tuple[Tensor, ...], output: Any) -> None:
        """Save the tensors of ``backward`` and ``jvp`` in ``ctx``.

        ``tensors`` are the potentials, ``engine.row_attributes`` unless eager, and
        ``extra_tensors``.
        """
        ctx.save_for_backward(*self._engine_tensors(tensors))

    def backward(self, ctx: Any, *grads: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """Gradients of potentials and ``extra_tensors`` from those of the result."""
        raise NotImplementedError

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        """Tangents of the result from those of potentials and ``extra_tensors``."""
        raise NotImplementedError

    # Dispatch -------------------------------------------------------------------

    def call(self) -> Any:
        """Return the result, differentiable in the potentials."""
        engine, extra_tensors = self.engine, self.extra_tensors
        if (
            engine.runs_kernels
            and is_eager()
            and (not extra_tensors or are_kernel_ready(extra_tensors))
        ):
            return self.call_eager()
        self.dtype = torch.float64
        tensors = (*engine.potentials, *engine.row_attributes, *extra_tensors)
        if not is_transformed():
            return self.call_in_graph(*tensors)
        if torch.compiler.is_compiling():
            # without fullgraph=True, Dynamo calls this function again, not compiling
            raise TypeError(NO_TRANSFORMS_MESSAGE)
        return TransformedOp.apply(self, *tensors)

    def call_eager(self) -> Any:
        """Return the result for eager tensors."""
        tensors = self.engine.potentials
        if self.extra_tensors:
            tensors = (*tensors, *self.extra_tensors)
        if self.is_differentiable and any_requires_grad(tensors):
            return EagerFunction.apply(self, *tensors)
        return self.compute()

    def forward(self, ctx: Any, tensors: tuple[Tensor, ...]) -> Any:
        """Compute the result and save the tensors of ``backward`` in ``ctx``."""
        output = self.compute()
        self.save(ctx, tensors, output)
        return output

    def _engine_tensors(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[: len(tensors) - len(self.extra_tensors)]

    def with_tensors(self: Self, tensors: Sequence[Tensor]) -> Self:
        """Return this op with other tensors."""
        other = copy.copy(self)
        n = len(tensors) - len(self.extra_tensors)
        other.engine, other.extra_tensors = (
            self.engine.with_tensors(tensors[:n]),
            tuple(tensors[n:]),
        )
        return other

    def op(self, *tensors: Tensor) -> Any:
        """Return the result for tensors that no transform has wrapped."""
        if torch.compiler.is_compiling() or num_dispatch_modes():
            return self.call_in_graph(*tensors)
        return self.with_tensors(tensors).compute()

    def with_repeated_rows(self: Self, size: int) -> Self:
        """Return this op for ``size`` batches, concatenated along the rows."""
        other = copy.copy(self)
        other.engine = self.engine.with_repeated_rows(size)
        return other

    def is_batched(self, count: int) -> list[bool]:
        """Whether each of the tensors has an axis of rows; shared potentials do not."""
        first, last = self.engine.num_row_potentials, len(self.engine.potentials)
        return [not first <= i < last for i in range(count)]

    def call_in_graph(self, *tensors: Tensor) -> Any:
        """Return the result as a node of a graph."""
        outputs = graph_op(*self.graph_args(*tensors))
        return outputs[0] if self.returns_tensor else tuple(outputs)

    def graph_args(self, *tensors: Tensor) -> tuple[str, str, list[int], list[Tensor]]:
        """Arguments of ``graph_op``: names of op and engine, integers, tensors."""
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
        cls, engine: Engine, extra_tensors: Sequence[Tensor], options: Sequence[int]
    ) -> "Op":
        """Rebuild the op from the arguments that a graph kept."""
        return cls(engine, *extra_tensors)


class EagerFunction(torch.autograd.Function):
    """Autograd function of an op on eager tensors."""

    # Not setup_context, for which PyTorch inspects the signature at every call.
    @staticmethod
    def forward(ctx: Any, op: Any, *tensors: Any) -> Any:
        ctx.op = op
        return op.forward(ctx, tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        potentials, extra_grads = ctx.op.backward(ctx, *grads)
        return None, *potentials, *extra_grads


def are_kernel_ready(tensors: Sequence[Tensor]) -> bool:
    """Whether kernels may read the memory of all tensors, provided nothing traces."""
    for x in tensors:  # noqa: SIM110 - a generator takes a microsecond
        if not (is_dense_cpu(x) or is_eager_tensor(x, "cuda")):
            return False
    return True


def any_requires_grad(tensors: Sequence[Tensor]) -> bool:
    """Whether autograd is enabled and any tensor requires a gradient."""
    if not torch.is_grad_enabled():
        return False
    for x in tensors:  # noqa: SIM110 - a generator takes a microsecond
        if x.requires_grad:
            return True
    return False


def potentials_need_grad(ctx: Any, num_potentials: int) -> Sequence[bool]:
    """Whether each of the potentials, which come first, needs a gradient."""
    needs_input_grad = ctx.needs_input_grad
    # the custom op has one list of tensors, autograd functions separate arguments
    if isinstance(needs_input_grad[-1], list | tuple):
        return needs_input_grad[-1][:num_potentials]
    result: Sequence[bool] = needs_input_grad[1 : 1 + num_potentials]
    return result


class Recomputation(NamedTuple):
    """A function that computes a value by differentiable ops, and its saved inputs."""

    value: Callable[[], Tensor]
    saved: tuple[object, ...]


class PrecomputedNode:
    """A value and its gradient, computed together: one node of a graph.

    Parameters
    ----------
    value
        Any shape; without a gradient.
    gradients
        Computes the gradients of the potentials, in each backward pass. Equal calls
        give equal bits.
    recomputation
        Of the value, for higher derivatives. Changing its saved tensors in place
        before a second pass raises an error.
    """

    def __init__(
        self, value: Tensor, gradients: Gradients, recomputation: Recomputation
    ) -> None:
        self.value, self.gradients, self.recomputation = value, gradients, recomputation

    def attach(self, potentials: Sequence[Tensor]) -> Tensor:
        """Return the value, differentiable in the potentials."""
        if not any_requires_grad(potentials):
            return self.value
        value: Tensor = EagerFunction.apply(self, *potentials)
        return value

    def forward(self, ctx: Any, potentials: tuple[Tensor, ...]) -> Tensor:
        reads = [x for x in self.recomputation.saved if isinstance(x, Tensor)]
        # tensors of inference mode can be neither saved nor changed outside of it
        ctx.save_for_backward(*potentials, *[x for x in reads if not x.is_inference()])
        ctx.passes = 0
        # keeping the output here would make a reference cycle with its graph
        value: Tensor = vars(self).pop("value")
        return value

    def backward(
        self, ctx: Any, grad: Tensor
    ) -> tuple[Sequence[Tensor | None], tuple[()]]:
        create_graph = torch.is_grad_enabled()
        if not create_graph and is_eager_tensor(grad, "cpu"):
            # the first pass needs no potentials, which may have changed in place
            if ctx.passes:
                _ = ctx.saved_tensors
            ctx.passes += 1
            return self.gradients(grad, ctx.needs_input_grad[1:]), ()
        needs_grad = ctx.needs_input_grad[1:]
        potentials = ctx.saved_tensors[: len(needs_grad)]
        with torch.enable_grad():
            value = self.recomputation.value()
        inputs = [
            x for x, is_needed in zip(potentials, needs_grad, strict=True) if is_needed
        ]
        grads = iter(
            torch.autograd.grad(
                value, inputs, grad, create_graph=create_graph, allow_unused=True
            )
        )
        return [next(grads) if is_needed else None for is_needed in needs_grad], ()


# Builders of an engine from the tensors of a graph node, by the engine's name.
ENGINE_BUILDERS: dict[str, Callable[[Sequence[Tensor]], Engine]] = {}


def _rebuild_op(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> Op:
    """Rebuild the op of a graph node."""
    num_extra, *options = sizes
    num_potentials = len(tensors) - num_extra
    engine_object = ENGINE_BUILDERS[engine](tensors[:num_potentials])
    return Op.registry[name].from_graph(
        engine_object, tensors[num_potentials:], options
    )


def _run_graph_op(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> list[Tensor]:
    result = _rebuild_op(name, engine, sizes, tensors).compute()
    results = list(result) if isinstance(result, tuple) else [result]
    input_ptrs = {x.data_ptr() for x in tensors if x.numel()}
    # a custom op may not return a tensor that shares memory with an input
    return [
        x.clone() if x.numel() and x.data_ptr() in input_ptrs else x for x in results
    ]


def _fake_results(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> list[Tensor]:
    result = _rebuild_op(name, engine, sizes, tensors).fake_result()
    return list(result) if isinstance(result, tuple) else [result]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *_, tensors = inputs
    op = ctx.op = _rebuild_op(*inputs)
    ctx.num_tensors = len(tensors)
    op.save(ctx, tuple(tensors), output[0] if op.returns_tensor else tuple(output))


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    op = ctx.op
    if not op.is_differentiable:
        return None, None, None, [None] * ctx.num_tensors
    potentials, extra_grads = op.backward(ctx, *grads)
    num_between = ctx.num_tensors - len(potentials) - len(extra_grads)
    return None, None, None, [*potentials, *[None] * num_between, *extra_grads]


graph_op = torch.library.custom_op(
    "smoothsp::ask",
    _run_graph_op,
    mutates_args=(),
    schema="(str question, str engine, SymInt[] sizes, Tensor[] tensors) -> Tensor[]",
)
graph_op.register_fake(_fake_results)
graph_op.register_autograd(_backward, setup_context=_setup_context)
