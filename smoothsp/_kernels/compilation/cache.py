"""Disk cache of a compiled function, valid for one hash of its sources."""

import warnings
from collections.abc import Callable
from typing import Any

from numba.core import config
from numba.core.caching import FunctionCache

from smoothsp._kernels.compilation.checksummed_files import ChecksummedFiles
from smoothsp._kernels.compilation.sources import source_digest


class SourceHashCache(FunctionCache):
    """numba's cache of a function, valid for one hash of the sources it depends on.

    The folder is located on first use.
    """

    suffix = ""

    def __init__(self, function: Callable[..., None]) -> None:
        self._py_func = function
        self._enabled: bool | None = None  # numba's: whether there is a folder
        self._cache_path = None
        self._sources = source_digest(
            function.__module__
        )  # as imported, maybe edited later

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self._enabled is None:
            self.enable_cache()
        return super().load_overload(sig, target_context)

    def enable_cache(self) -> None:
        try:
            super().__init__(self._py_func)
        except RuntimeError:
            self._enabled = False
            return
        base = f"{self._impl.filename_base}{self.suffix}.signed"
        self._cache_file = ChecksummedFiles(self._cache_path, base, self._sources)

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        checked = bool(config.BOUNDSCHECK)
        return (*super()._index_key(signature, codegen), checked)

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            warn_no_cache(error.strerror or str(error))


def warn_no_cache(reason: str) -> None:
    """Warn that compiled kernels are not cached."""
    # the same text each time, so Python shows it once
    warnings.warn(
        f"smoothsp: compiled kernels cannot be cached ({reason}), so each process "
        "compiles them again. Set NUMBA_CACHE_DIR to a writable folder",
        stacklevel=2,
    )
