"""Forward-mode derivatives of modules: backends, failures, double backward."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

# untyped in torch
forward_ad: Any = torch.autograd.forward_ad
_is_warm = False


def warm_up() -> None:
    """Load the decompositions of forward AD once, without torch's own warnings."""
    global _is_warm
    if not _is_warm:
        with warnings.catch_warnings(), forward_ad.dual_level():
            warnings.simplefilter("ignore")
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))
        _is_warm = True


@contextmanager
def forward_ad_backends(module: nn.Module) -> Iterator[None]:
    """Use backends that have forward-mode derivatives, within the context.

    Attention in plain operations, without its fast path for inference; recurrent
    layers, and only those, without oneDNN and cuDNN.
    """
    recurrent = [
        submodule for submodule in module.modules() if isinstance(submodule, nn.RNNBase)
    ]
    libraries = [torch.backends.mkldnn, torch.backends.cudnn]
    enabled_before: list[list[bool]] = []

    def disable(*_: Any) -> None:
        enabled_before.append([library.enabled for library in libraries])
        for library in libraries:
            setattr(library, "enabled", False)  # noqa: B010  a property, untyped

    def restore(*_: Any) -> None:
        for library, value in zip(libraries, enabled_before.pop(), strict=True):
            setattr(library, "enabled", value)  # noqa: B010

    is_fastpath_enabled = torch.backends.mha.get_fastpath_enabled()
    # Hooks are removed in reverse order, also after an error.
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, is_fastpath_enabled)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        for submodule in recurrent:
            for handle in (
                submodule.register_forward_pre_hook(disable),
                submodule.register_forward_hook(restore, always_call=True),
            ):
                stack.callback(handle.remove)
        yield


def find_failing_submodule(module: nn.Module, call: Callable[[], Any]) -> str:
    """Name and class of the innermost submodule in which a call fails."""
    running: list[str] = []
    with ExitStack() as stack:
        for name, submodule in module.named_modules():
            label = f"{name or 'the model'} ({type(submodule).__name__})"

            def enter(*_: Any, label: str = label) -> None:
                running.append(label)

            def leave(*_: Any) -> None:
                running.pop()

            stack.callback(submodule.register_forward_pre_hook(enter).remove)
            stack.callback(submodule.register_forward_hook(leave).remove)
        try:
            call()
        except Exception:
            return running[-1] if running else "the model"
    return "the model"


def double_backward_jvp(
    outputs: list[Tensor], leaves: list[Tensor], direction: list[Tensor]
) -> list[Tensor | None]:
    """Jacobian-vector product from vector-Jacobian products.

    ``J^T c`` is linear in c, so its own adjoint, applied to the direction, is ``J d``.
    """
    differentiable = [output for output in outputs if output.requires_grad]
    with torch.enable_grad():
        # Cotangents at 0: J^T c is linear, so that its derivative in c does not depend
        # on c.
        c = [torch.zeros_like(output, requires_grad=True) for output in differentiable]
        vjps = torch.autograd.grad(
            differentiable, leaves, c, create_graph=True, allow_unused=True
        )
        used = [
            (g, d)
            for g, d in zip(vjps, direction, strict=True)
            if g is not None and g.requires_grad
        ]
        jvps = torch.autograd.grad(
            [g for g, _ in used],
            c,
            [d for _, d in used],
            retain_graph=True,
            allow_unused=True,
        )
    remaining_jvps = iter(jvps)
    return [
        None
        if not output.requires_grad or (t := next(remaining_jvps)) is None
        else t.detach()
        for output in outputs
    ]


def check_double_backward(outputs: list[Tensor], leaves: list[Tensor]) -> bool:
    """Whether ``<c, J d> = <J^T c, d>`` for random c and d.

    Operations without second derivatives may silently vanish from the second pass.
    """
    generator = torch.Generator().manual_seed(0)

    def sample_like(like: Tensor) -> Tensor:
        # float64 samples on the CPU: equal on all devices and dtypes.
        sample = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return sample.to(like)

    direction = [sample_like(leaf) for leaf in leaves]
    tangents = double_backward_jvp(outputs, leaves, direction)
    differentiable = [
        (o, t, sample_like(o)) for o, t in zip(outputs, tangents, strict=True)
    ]
    differentiable = [(o, t, c) for o, t, c in differentiable if o.requires_grad]
    vjps = torch.autograd.grad(
        [o for o, _, _ in differentiable],
        leaves,
        [c for _, _, c in differentiable],
        retain_graph=True,
        allow_unused=True,
    )
    forward = sum(float((c * t).sum()) for _, t, c in differentiable if t is not None)
    reverse = sum(
        float((g * d).sum())
        for g, d in zip(vjps, direction, strict=True)
        if g is not None
    )
    return abs(forward - reverse) <= 1e-3 * (abs(forward) + abs(reverse))
