"""A question to a structure: one function, and three ways that lead to it.

Plain tensors on the CPU go straight to the function, through ``EagerGradient`` where a
gradient is wanted. ``torch.library.custom_op`` is what ``torch.compile`` sees and what
chooses by device; it costs 30 us a call, as much as inference of a small batch. The
transforms of ``torch.func`` and forward derivatives go through ``Transformed``. What is
known about gradients, in ``save``, ``gradient`` and ``tangent``, is written once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from smoothsp.oracles._questions.old_transforms import Transformed as OldTransformed

NO_TRANSFORMS = (
    "torch.func: expected no transform inside torch.compile(fullgraph=True); call "
    "torch.compile(loss, fullgraph=True) and torch.autograd.grad, or torch.func.grad "
    "without torch.compile"
)
PLAIN = (Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_functorch_is_active = torch._C._are_functorch_transforms_active
_keys = torch._C._dispatch_keys  # no public way tells as much
with torch.inference_mode():
    _INFERENCE = _keys(torch.empty(0, device="cpu")).raw_repr()
# Dense tensors on the CPU that nothing wraps, without a negative bit.
ORDINARY = (_keys(torch.empty(0, device="cpu")).raw_repr(), _INFERENCE)


def _as_they_are(inputs: list[Any], size: int) -> list[Any]:
    return inputs


class Op:
    """An operation of structures. Call it with the arguments of ``function``.

    Parameters
    ----------
    name
        Of the op, ``smoothsp::name``.
    schema
        Of its arguments and answers, as ``torch.library`` writes them.
    function
        The answer, for CPU tensors that nothing has proven. The first argument is a
        tensor.
    cuda
        The same for CUDA tensors.
    fake
        Outputs of the right shape and dtype, for ``torch.compile``.
    of_buffers
        The same from what is proven: ``of_buffers(buffers, *rest)``, where ``rest``
        follows the arguments that ``buffers.inputs`` gives.
    save, gradient, tangent
        ``save(ctx, inputs, output)``, ``gradient(ctx, *grads)`` and
        ``tangent(ctx, *tangents)``, as ``torch.autograd.Function`` has them, but grads
        and tangents may be None. None for labels. Saved tensors are read once.
    by_row
        ``by_row(dims)`` says of each argument whether its first axis is the batch,
        given how many axes it has; ``torch.func.vmap`` then needs one call.
    fold
        ``fold(inputs, size)``: the arguments, whose batch has become ``size`` batches,
        so that sums over rows are kept apart.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        *,
        function: Callable[..., Any],
        cuda: Callable[..., Any],
        fake: Callable[..., Any],
        of_buffers: Callable[..., Any] | None = None,
        save: Callable[..., None] | None = None,
        gradient: Callable[..., Any] | None = None,
        tangent: Callable[..., Any] | None = None,
        by_row: Callable[[list[int]], list[bool]],
        fold: Callable[[list[Any], int], list[Any]] = _as_they_are,
    ) -> None:
        self.name, self.function, self.of_buffers = name, function, of_buffers
        self.save, self.gradient, self.tangent = save, gradient, tangent
        self.by_row, self.fold = by_row, fold
        self.op = torch.library.custom_op(
            f"smoothsp::{name}",
            function,
            mutates_args=(),
            device_types="cpu",
            schema=schema,
        )
        self.op.register_kernel("cuda")(cuda)
        self.op.register_fake(fake)
        if gradient is not None and save is not None:
            self.op.register_autograd(gradient, setup_context=save)

    def __call__(self, *inputs: Any) -> Any:
        if not all(is_eager_tensor(x) for x in inputs if isinstance(x, Tensor)):
            return self.traced(*inputs)
        if self.gradient is None or not torch.is_grad_enabled():
            return self.function(*inputs)
        return EagerGradient.apply(self, None, *inputs)

    def call(self, buffers: Any, *rest: Any) -> Any:
        """The answer, from proven memory where nothing traces."""
        if not (buffers.plain and is_eager()):
            return self.traced(*buffers.inputs, *rest)
        if self.gradient is None or not buffers.wants_gradient():
            return self.of_buffers(buffers, *rest)  # type: ignore[misc]
        return EagerGradient.apply(self, buffers, *buffers.inputs, *rest)

    def begin(self, ctx: Any, buffers: Any, inputs: tuple[Any, ...]) -> Any:
        """The answer, and in ``ctx`` what its gradient takes."""
        if buffers is None:
            output = self.function(*inputs)
        else:
            output = self.of_buffers(  # type: ignore[misc]
                buffers, *inputs[len(buffers.inputs) :]
            )
        self.save(ctx, inputs, output)  # type: ignore[misc]
        return output

    def repeated(self, size: int) -> "Op":
        """The question of a batch so many times as large: its inputs tell."""
        return self

    def traced(self, *inputs: Any) -> Any:
        """The answer for tensors that are traced or transformed, or on a device."""
        if not is_transformed():
            return self.op(*inputs)
        if torch.compiler.is_compiling():
            # without fullgraph=True, Dynamo calls this function again, not compiling
            raise TypeError(NO_TRANSFORMS)
        return OldTransformed.apply(self, *inputs)


class EagerGradient(torch.autograd.Function):
    """Autograd function of an op on plain CPU tensors with gradients.

    ``question`` has ``begin`` and ``gradient`` as above, with a gradient for each of
    the inputs.
    """

    # Not setup_context, for which PyTorch inspects the signature at every call.
    @staticmethod
    def forward(ctx: Any, question: Any, buffers: Any, *inputs: Any) -> Any:
        ctx.question = question
        return question.begin(ctx, buffers, inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *ctx.question.gradient(ctx, *grads)


def is_eager() -> bool:
    """Whether functions are called for their answers, and no graph is made of them."""
    # every question asks this several times: one flat function
    return not (
        _is_compiling()
        or is_in_torch_dispatch_mode()
        or _functorch_is_active()
        or forward_ad._current_level >= 0
    )


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` or forward differentiation is under way."""
    return (
        _functorch_is_active() or forward_ad._current_level >= 0  # no public way asks
    )


def is_eager_tensor(tensor: Tensor, device: str = "cpu") -> bool:
    """Whether this is an ordinary tensor on such a device, that nothing traces."""
    if type(tensor) not in PLAIN or not is_eager():
        return False
    if device == "cpu":
        return is_dense_cpu(tensor)
    return (
        tensor.device.type == device
        # what torch.autograd.grad(is_grads_batched=True) hands on
        and not torch._C._functorch.is_legacy_batchedtensor(tensor)
    )


def are_dense_cpu(first: object, second: object) -> bool:
    """``is_dense_cpu`` of both."""
    return (
        type(first) in PLAIN
        and type(second) in PLAIN
        and _keys(first).raw_repr() in ORDINARY  # type: ignore[arg-type]
        and _keys(second).raw_repr() in ORDINARY  # type: ignore[arg-type]
    )


def is_dense_cpu(tensor: object) -> bool:
    """Whether this is a dense CPU tensor that nothing wraps: its memory is its values.

    Not for use while ``torch.compile`` traces.
    """
    return (
        type(tensor) in PLAIN and _keys(tensor).raw_repr() in ORDINARY  # type: ignore[arg-type]
    )
