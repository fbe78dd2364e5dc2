"""Write-once public attributes, and detection of potentials changed in place."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor

from smoothsp.oracles._inference.checks import NO_TORCHSCRIPT, has_concrete_values

# Bypasses ReadOnly.__setattr__, whose check of the name takes a microsecond.
set_attribute = object.__setattr__

# Methods that read the values of potentials; those left out call one of these.
_READING_METHODS = (
    *("score", "decode", "decode_topk", "log_partition", "marginals", "edge_marginals"),
    *("log_prob", "entropy", "sample", "max_marginals", "bound", "log_count"),
    *("augment", "scale", "select", "restrict", "_to_float64", "_potentials"),
    *("violation", "log_likelihood", "_log_partition_hi_lo"),
    *("_score_hi_lo", "_decode_hi_lo", "_decode_topk_hi_lo"),
)


class ReadOnly:
    """Object whose public attributes are set once, in the constructor.

    Structures cache values derived from their potentials, so assigning a potential
    would leave stale caches. A change in place has the same effect: structures record
    PyTorch's version counters of their potentials, and methods raise an error if a
    counter has changed.
    """

    # Name, tensor and version of each potential when the structure was made.
    _versions: Sequence[tuple[str, Tensor, int]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in _READING_METHODS:
            if name in vars(cls):
                setattr(cls, name, _require_unchanged_potentials(vars(cls)[name]))

    def _record_versions(self, potentials: Mapping[str, Tensor]) -> None:
        """Record the version counters of potentials, unless traced."""
        if has_concrete_values():
            versions = []
            try:
                for name, x in potentials.items():
                    versions.append((name, x, x._version))
            except RuntimeError:  # tensors of inference mode have no version
                return
            set_attribute(self, "_versions", versions)

    def __getstate__(self) -> dict[str, Any]:
        # version counters of copied or loaded tensors restart at 0
        return {name: x for name, x in vars(self).items() if name != "_versions"}

    def __copy__(self) -> Any:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    @staticmethod
    def __prepare_scriptable__() -> NoReturn:
        """Raise TypeError: ``torch.jit.script`` calls this method first."""
        raise TypeError(NO_TORCHSCRIPT)

    def __setattr__(self, name: str, value: object) -> None:
        if name[0] != "_" and (
            name in self.__dict__
            or isinstance(getattr(type(self), name, None), property)
        ):
            kind = type(self).__name__
            raise AttributeError(
                f"{name}: the attributes of a {kind} cannot be set again; make a new "
                f"{kind}"
            )
        super().__setattr__(name, value)


def _require_unchanged_potentials(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method to raise ValueError if a potential was changed in place."""

    @functools.wraps(method)
    def call(self: ReadOnly, *args: Any, **options: Any) -> Any:
        for name, potential, version in self._versions:
            if potential._version != version:
                kind = type(self).__name__
                raise ValueError(
                    f"{name}: expected the values that this {kind} was made of, got a "
                    f"tensor that was changed in place since; make a new {kind}"
                )
        return method(self, *args, **options)

    return call
