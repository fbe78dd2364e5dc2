"""The ways that lead from a question to its answer and its gradient.

Plain tensors go straight to the kernels of an engine, through ``EagerFunction`` where a
gradient is wanted. ``torch.compile`` and everything else that traces see one op,
``smoothsp::ask``. The transforms of ``torch.func`` and forward derivatives go through
``TransformedOp``. The rules for derivatives, in ``rules``, are the same for all.
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

    def __init__(self, engine: Engine, *extra_tensors: Tensor) -> None:
        self.engine, self.extra_tensors = engine, extra_tensors

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
        ctx.save_for_backward(*self._engine_tensors(tensors))

    def backward(self, ctx: Any, *grads: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """Gradients of the potentials, and of ``about``, from those of the answer."""
        raise NotImplementedError

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        """Tangents of the answer from those of the potentials and of ``about``."""
        raise NotImplementedError

    # What follows ---------------------------------------------------------------

    def call(self) -> Any:
        """The answer; gradients reach the potentials."""
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

    def _engine_tensors(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
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
        outputs = graph_op(*self.graph_args(*tensors))
        return outputs[0] if self.returns_tensor else tuple(outputs)

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
        cls, engine: Engine, extra_tensors: Sequence[Tensor], options: Sequence[int]
    ) -> "Op":
        """The question that a graph kept."""
        return cls(engine, *extra_tensors)


class EagerFunction(torch.autograd.Function):
    """Autograd function of a question about plain tensors."""

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


def potentials_need_grad(ctx: Any, num_potentials: int) -> Sequence[bool]:
    """Whether each of the potentials, which come first, needs a gradient."""
    needs_input_grad = ctx.needs_input_grad
    # the op has them in one list
    if isinstance(needs_input_grad[-1], list | tuple):
        return needs_input_grad[-1][:num_potentials]
    result: Sequence[bool] = needs_input_grad[1 : 1 + num_potentials]
    return result


class Recomputation(NamedTuple):
    """A value by differentiable questions, and what these read besides potentials."""

    value: Callable[[], Tensor]
    saved: tuple[object, ...]


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
        self, value: Tensor, gradients: Gradients, recomputation: Recomputation
    ) -> None:
        self.value, self.gradients, self.recomputation = value, gradients, recomputation

    def attach(self, potentials: Sequence[Tensor]) -> Tensor:
        """The value; gradients reach the potentials."""
        if not any_requires_grad(potentials):
            return self.value
        value: Tensor = EagerFunction.apply(self, *potentials)
        return value

    def forward(self, ctx: Any, potentials: tuple[Tensor, ...]) -> Tensor:
        reads = [x for x in self.recomputation.saved if isinstance(x, Tensor)]
        # those of inference mode cannot be saved, nor changed outside of it
        ctx.save_for_backward(*potentials, *[x for x in reads if not x.is_inference()])
        ctx.passes = 0
        # no longer needed, and part of the graph from now on
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


# What makes the engine of a graph of its tensors, by name.
ENGINE_BUILDERS: dict[str, Callable[[Sequence[Tensor]], Engine]] = {}


def _rebuild_op(
    name: str, engine: str, sizes: Sequence[int], tensors: Sequence[Tensor]
) -> Op:
    """The question that a node of a graph stands for."""
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
    # an answer may not share the memory of an input
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
