"""A question to a structure: one function, reached by two ways.

``torch.library.custom_op`` is what ``torch.compile`` sees and what chooses by device.
It costs 30 us a call, as much as the whole inference of a small batch; so plain CPU
tensors go straight to the function, through ``torch.autograd.Function`` for a gradient.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

PLAIN = (Tensor, torch.nn.Parameter)


def question(
    name: str,
    function: Callable[..., Any],
    cuda: Callable[..., Any],
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    gradient: Callable[..., Any] | None = None,
    eager: type[torch.autograd.Function] | None = None,
    prove: Callable[..., None] | None = None,
) -> Callable[..., Any]:
    """Register ``function`` as the op ``smoothsp::name`` and return how to ask it.

    Parameters
    ----------
    name
        Of the op.
    function
        The answer, for CPU tensors. The first argument is a tensor.
    cuda
        The same for CUDA tensors.
    fake
        Outputs of the right shape and dtype, for ``torch.compile``.
    save, gradient
        ``save(ctx, inputs, output)`` and ``gradient(ctx, *grads)``, as
        ``torch.library.register_autograd`` takes them; none for labels.
    eager
        What stands for the op on plain CPU tensors; answers only its first output.
    prove
        ``prove(*inputs)`` raises where ``function`` would leave its arrays. Called by
        the op only: what is traced was not looked at before.
    """

    def proven(*inputs: Any) -> Any:
        if prove is not None:
            prove(*inputs)
        return function(*inputs)

    op = torch.library.custom_op(
        f"smoothsp::{name}",
        proven,
        mutates_args=(),
        device_types="cpu",
        schema=torch.library.infer_schema(function, mutates_args=()),
    )
    op.register_kernel("cuda")(cuda)
    op.register_fake(fake)
    if gradient is None or save is None:

        def ask(*inputs: Any) -> Any:
            return function(*inputs) if is_plain(inputs[0]) else op(*inputs)

        return ask
    save_inputs, backward_of = save, gradient
    op.register_autograd(backward_of, setup_context=save_inputs)

    if eager is not None:
        apply = eager.apply

        def ask_first(*inputs: Any) -> Any:
            return apply(*inputs) if is_plain(inputs[0]) else op(*inputs)[0]

        return ask_first

    class Eager(torch.autograd.Function):
        # Not setup_context, for which PyTorch inspects the signature at every call.
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = function(*inputs)
            save_inputs(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward_of(ctx, *grads)

    def ask_with_gradient(*inputs: Any) -> Any:
        if not is_plain(inputs[0]):
            return op(*inputs)
        if not torch.is_grad_enabled():
            return function(*inputs)
        return Eager.apply(*inputs)

    return ask_with_gradient


def is_plain(tensor: Tensor, device: str = "cpu") -> bool:
    """Whether this is an ordinary tensor on such a device, that nothing traces."""
    return (
        not torch.compiler.is_compiling()
        and type(tensor) in PLAIN
        and tensor.device.type == device
        and not torch._C._are_functorch_transforms_active()
        and not is_in_torch_dispatch_mode()
    )
