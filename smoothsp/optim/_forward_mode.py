"""Forward-mode derivatives of a module: the switches they need, who prevents them."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

# untyped in torch
forward_ad: Any = torch.autograd.forward_ad
_loaded = False


def load() -> None:
    """Let torch load its decompositions, once: it warns of its own deprecations."""
    global _loaded
    if not _loaded:
        with warnings.catch_warnings(), forward_ad.dual_level():
            warnings.simplefilter("ignore")
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))
        _loaded = True


@contextmanager
def switches(module: nn.Module) -> Iterator[None]:
    """Choose the implementations that have forward-mode derivatives.

    Attention in plain operations, without its fast path for inference; recurrent
    layers, and only those, without oneDNN and cuDNN.
    """
    recurrent = [part for part in module.modules() if isinstance(part, nn.RNNBase)]
    libraries = [torch.backends.mkldnn, torch.backends.cudnn]
    before: list[list[bool]] = []

    def off(*_: Any) -> None:
        before.append([library.enabled for library in libraries])
        for library in libraries:
            setattr(library, "enabled", False)  # noqa: B010  a property, untyped

    def back(*_: Any) -> None:
        for library, value in zip(libraries, before.pop(), strict=True):
            setattr(library, "enabled", value)  # noqa: B010

    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        for part in recurrent:
            for handle in (
                part.register_forward_pre_hook(off),
                part.register_forward_hook(back, always_call=True),
            ):
                stack.callback(handle.remove)
        yield


def culprit(module: nn.Module, call: Callable[[], Any]) -> str:
    """Name and class of the innermost submodule in which a call fails."""
    running: list[str] = []
    with ExitStack() as stack:
        for name, part in module.named_modules():
            shown = f"{name or 'the model'} ({type(part).__name__})"

            def enter(*_: Any, shown: str = shown) -> None:
                running.append(shown)

            def leave(*_: Any) -> None:
                running.pop()

            stack.callback(part.register_forward_pre_hook(enter).remove)
            stack.callback(part.register_forward_hook(leave).remove)
        try:
            call()
        except Exception:
            return running[-1] if running else "the model"
    return "the model"


def by_two_reverse_passes(
    outputs: list[Tensor], leaves: list[Tensor], direction: list[Tensor]
) -> list[Tensor | None]:
    """Jacobian-vector product from vector-Jacobian products.

    ``J^T c`` is linear in c, so its own adjoint, applied to the direction, is ``J d``.
    """
    moving = [one for one in outputs if one.requires_grad]
    with torch.enable_grad():
        c = [torch.zeros_like(one, requires_grad=True) for one in moving]
        pulled = torch.autograd.grad(
            moving, leaves, c, create_graph=True, allow_unused=True
        )
        used = [
            (g, d)
            for g, d in zip(pulled, direction, strict=True)
            if g is not None and g.requires_grad
        ]
        pushed = torch.autograd.grad(
            [g for g, _ in used],
            c,
            [d for _, d in used],
            retain_graph=True,
            allow_unused=True,
        )
    found = iter(pushed)
    return [
        None if not one.requires_grad or (t := next(found)) is None else t.detach()
        for one in outputs
    ]


def reverse_passes_agree(outputs: list[Tensor], leaves: list[Tensor]) -> bool:
    """Whether ``<c, J d> = <J^T c, d>`` for random c and d.

    An operation that is differentiable only once may drop out of the second pass
    without a word.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return drawn.to(like)

    direction = [draw(leaf) for leaf in leaves]
    tangents = by_two_reverse_passes(outputs, leaves, direction)
    moving = [(o, t, draw(o)) for o, t in zip(outputs, tangents, strict=True)]
    moving = [(o, t, c) for o, t, c in moving if o.requires_grad]
    pulled = torch.autograd.grad(
        [o for o, _, _ in moving],
        leaves,
        [c for _, _, c in moving],
        retain_graph=True,
        allow_unused=True,
    )
    forward = sum(float((c * t).sum()) for _, t, c in moving if t is not None)
    reverse = sum(
        float((g * d).sum())
        for g, d in zip(pulled, direction, strict=True)
        if g is not None
    )
    return abs(forward - reverse) <= 1e-3 * (abs(forward) + abs(reverse))
