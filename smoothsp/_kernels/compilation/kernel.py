"""Compilation of kernels with numba, and their cache on disk.

A **kernel** is a function that Python calls: decorate it with ``@kernel``. It runs
without the GIL, so that threads can share its rows. A **subroutine** is a function that
only kernels call: decorate it with ``@subroutine``, and it is part of their code.

numba stores compiled functions on disk and loads one if the file of the function has
not changed. A kernel also contains code of the files it imports. So it is loaded only
if none of its direct and indirect imports has changed.

The cache lies in ``NUMBA_CACHE_DIR`` if that is set, in a folder for each folder of
sources; else in ``__pycache__`` beside the source; else in numba's folder in the cache
of the user. For the function f of m.py, whose decorator is on line 7, and Python 3.12,
the files are

    m.f-7.py312.signed.nbi           index: from keys to data files
    m.f-7.py312.signed.1.nbc         machine code for one key
    m.f-7.py312.subroutine.signed.*  bitcode, if f is a subroutine

The key is the signature, the target triple, name and features of the processor, a hash
of the bytecode and of the closure of f, and whether bounds are checked. An index is
valid for one version of numba and one hash of sources. ``digest`` hashes m, this
module, and the modules of ``smoothsp._kernels`` that they import, directly or not. An
edit of any of these, even of a comment, invalidates the index. Each file begins with
the SHA-256 of the rest.

If the cache lacks a kernel, a prebuilt one of the package is loaded: see ``prebuilt``.
If it must be compiled, the subroutines that it calls are cached, too, so that another
process does not compile them again for another kernel. Without a writable folder, each
process compiles its kernels.
"""

import gc
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from numba import njit
from numba.core import config
from numba.core.caching import CompileResultCacheImpl
from numba.core.compiler import CompileResult
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from smoothsp._kernels.compilation import clock, prebuilt
from smoothsp._kernels.compilation.cache import (
    SourceHashCache,
    warn_no_cache,
)
from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp._kernels.compilation.subroutine import Subroutine, subroutine


def kernel(
    function: Callable[..., None] | None = None,
    *,
    optimise: bool = True,
    **options: Any,
) -> Any:
    """Compile a kernel: without the GIL, divisions by zero as numpy, cached on disk.

    ``optimise``: as ``subroutine``, for kernels that call it. ``options`` are further
    options of ``numba.njit``.
    """
    if function is None:
        return partial(kernel, optimise=optimise, **options)
    function.__signature__ = inspect.signature(function)  # numba needs it twice
    compiled = njit(nogil=True, error_model="numpy", **options)(function)
    if not config.DISABLE_JIT:
        compiled.__class__ = Kernel
        compiled.as_subroutine = subroutine(function, optimise=optimise, **options)
        compiled._cache = KernelCache(function)
    return compiled


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel; other kernels that call it link ``as_subroutine`` instead."""

    as_subroutine: Subroutine

    @property
    def _numba_type_(self) -> Any:
        return self.as_subroutine._numba_type_

    def compile(self, sig: Any) -> Any:
        # LLVM passes the machine code to a Python callback: an exception raised there,
        # such as KeyboardInterrupt, is lost, and numba then fails for lack of the code
        was_enabled = gc.isenabled()
        gc.disable()  # collections take time here, and most new objects stay alive
        try:
            with defer_sigint(), clock.exclude_compilation():
                return super().compile(sig)
        finally:
            if was_enabled:
                gc.enable()


class KernelCacheImpl(CompileResultCacheImpl):
    """Serialisation of a kernel: machine code, with empty stubs as bitcode."""

    def reduce(self, cres: Any) -> Any:
        (name, kind, (machine_code, _)), *fields = cres._reduce()
        fields[5] = ""  # types as text
        names = cres.library._get_module_for_linking().functions
        defined = [function.name for function in names if not function.is_declaration]
        stub = "".join(
            f'define void @"{function}"() {{ ret void }}\n' for function in defined
        )
        bitcode = llvm.parse_assembly(stub).as_bitcode()
        return ((name, kind, (machine_code, bitcode)), *fields)


class KernelCache(SourceHashCache):
    """Cache of a kernel: the user's folder, then the package's prebuilt kernels."""

    _impl_class = KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # only numba's runtime: loading all of its target takes most of a first call
        rtsys.initialize(target_context)
        if self._enabled is None:
            self.enable_cache()
        with self._guard_against_spurious_io_errors():
            overload = self._load_overload(sig, target_context)
        if overload is not None:
            return overload
        key = self._index_key(sig, target_context.codegen())
        code = prebuilt.load(self._py_func, key)
        if code is not None:
            return CompileResult._rebuild(target_context, *code)
        if not self._enabled:
            warn_no_cache("no folder can be written to")
        return None

    def save_prebuilt(self, sig: Any, cres: Any) -> None:
        """Write code compiled for an x86-64 level to the package."""
        key = self._index_key(sig, cres.codegen)
        prebuilt.save(self._py_func, key, KernelCacheImpl.reduce(self, cres))
