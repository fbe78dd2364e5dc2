"""Side effects of closures: changed buffers, scaled losses, reads of mu.

They do not show in loss or gradients, so they are detected during an evaluation, once
in each epoch.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy


class BufferGuard:
    """Restores buffers that a closure changes, such as statistics of BatchNorm.

    Evaluations within ``restored()`` leave the buffers unchanged.
    """

    def __init__(self) -> None:
        self._changing: list[tuple[nn.Module, str]] | None = None

    def __reduce__(self) -> tuple[type["BufferGuard"], tuple[()]]:
        # Copies detect their modules anew.
        return BufferGuard, ()

    @contextmanager
    def restored(self, detect: bool) -> Iterator[None]:
        """Restore the buffers on exit; with ``detect`` find those changed."""
        saved: dict[tuple[nn.Module, str], tuple[Tensor, Tensor]] = {}

        def save_buffers(module: nn.Module, _: Any) -> None:
            for name, buffer in module.named_buffers(recurse=False):
                if (module, name) not in saved and not is_lazy(buffer):
                    saved[module, name] = buffer, buffer.detach().clone()

        with ExitStack() as stack:
            # Detection needs hooks on all modules, which is slow: once per epoch.
            if detect or self._changing is None:
                self._changing = None
                # Compiled code ignores hooks and warns about them.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                stack.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", ".*global hooks on modules")
                stack.callback(register_module_forward_pre_hook(save_buffers).remove)
            else:
                for module, name in self._changing:
                    buffer = getattr(module, name)
                    saved[module, name] = buffer, buffer.detach().clone()
            try:
                yield
            finally:
                changed = [
                    key
                    for key, (buffer, copy) in saved.items()
                    if _restore_buffer(*key, buffer, copy)
                ]
        if self._changing is None:
            self._changing = changed


@torch.no_grad()
def _restore_buffer(module: nn.Module, name: str, buffer: Tensor, copy: Tensor) -> bool:
    """Restore a buffer; return whether it had changed."""
    replaced = getattr(module, name) is not buffer
    if replaced:
        setattr(module, name, buffer)
    # Native kernels change statistics without a new tensor version: compare values.
    same = torch.equal(buffer, copy)
    if not same:
        buffer.copy_(copy)
    return replaced or not same


@contextmanager
def refuse_scaled_gradients(optimizer: str) -> Iterator[None]:
    """Raise on exit if gradients are still scaled by a ``GradScaler``."""
    scaling: dict[int, GradScaler] = {}
    originals: list[tuple[type, str, Callable[..., Any]]] = []

    def make_tracking_method(
        name: str, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        def tracked(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            if name == "scale" and scaler.is_enabled():
                scaling[id(scaler)] = scaler
            elif name == "unscale_":
                scaling.pop(id(scaler), None)
            return original(scaler, *args, **kwargs)

        return tracked

    # GradScaler has no hooks: replace its methods.
    for scaler_class in (GradScaler, *_iterate_subclasses(GradScaler)):
        for name in ("scale", "unscale_"):
            if name in vars(scaler_class):
                originals.append((scaler_class, name, vars(scaler_class)[name]))
    for scaler_class, name, original in originals:
        setattr(scaler_class, name, make_tracking_method(name, original))
    try:
        yield
    finally:
        for scaler_class, name, original in originals:
            setattr(scaler_class, name, original)
    for scaler in scaling.values():
        raise RuntimeError(
            f"{optimizer}: expected a closure that leaves gradients of the loss, got "
            f"gradients that a GradScaler scaled by {scaler.get_scale():g}; call "
            "loss.backward() without it (bfloat16 needs no scaler), or after backward()"
            " scaler.unscale_(optimizer) and scaler.update()"
        )


def _iterate_subclasses(base: type) -> Iterator[type]:
    subclass: type
    for subclass in base.__subclasses__():
        yield subclass
        yield from _iterate_subclasses(subclass)


@contextmanager
def require_mu_read(optimizer: str, smoothing: Any) -> Iterator[None]:
    """Raise on exit if the closure did not read ``mu`` of the smoothing.

    The object gets a subclass that records the first read.
    """
    if smoothing is None:
        yield
        return
    smoothing_class = type(smoothing)

    class ReadDetector(smoothing_class):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "mu":
                object.__setattr__(self, "__class__", smoothing_class)
            return value

    try:
        object.__setattr__(smoothing, "__class__", ReadDetector)
    except TypeError:
        # Classes with another memory layout cannot be replaced: skip the check.
        yield
        return
    try:
        yield
        unread = type(smoothing) is ReadDetector
    finally:
        object.__setattr__(smoothing, "__class__", smoothing_class)
    if unread:
        raise ValueError(
            f"smoothing: {optimizer} expected the object that the loss is smoothed by, "
            f"as StructuralHinge(...).smoothing, got {smoothing} whose mu the closure "
            "never reads"
        )
