"""How a kernel is compiled, and when one compiled earlier is loaded instead.

A **kernel** is a function that Python calls: decorate it with ``@kernel``. It runs
without the GIL, so that threads can share its rows. A **subroutine** is a function that
only kernels call: decorate it with ``@subroutine``, and it is part of their code.

numba keeps compiled functions on disk and loads one if the file of the function has not
changed. A kernel also holds code of the files it imports, so here it is loaded only if
none of these has changed, nor what they import.

The cache lies in ``NUMBA_CACHE_DIR`` if that is set, in a folder for each folder of
sources; else in ``__pycache__`` beside the source; else in numba's folder in the cache
of the user. For the function f of m.py, whose decorator is on line 7, and Python 3.12,
the files are

    m.f-7.py312.signed.nbi           index: from keys to data files
    m.f-7.py312.signed.1.nbc         machine code for one key
    m.f-7.py312.subroutine.signed.*  bitcode, if f is a subroutine

The key is the signature, the target triple, name and features of the processor, a hash
of the bytecode and of the closure of f, and whether bounds are checked. An index is
valid for one version of numba and one hash of sources. ``_digest`` hashes m, this
module, and the modules of ``smoothsp._kernels`` that they import, directly or not. An
edit of any of these, even of a comment, invalidates the index. Each file begins with
the SHA-256 of the rest.

Where a kernel has to be compiled, the subroutines that it calls are kept and loaded,
too: another process does not compile them again for another kernel. Where nothing can
be kept, each process compiles what it needs.
"""

import functools
import hashlib
import importlib.util
import io
import os
import pickle
import re
import warnings
from collections.abc import Callable
from functools import partial
from pickle import UnpicklingError
from typing import Any

from numba import njit
from numba.core import config, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from smoothsp._kernels.compilation.interrupts import uninterrupted
from smoothsp._kernels.compilation.subroutine import (
    SUBROUTINES,
    KeptSubroutines,
    subroutine,
)


def kernel(
    function: Callable[..., None] | None = None, *, loops: bool = True, **options: Any
) -> Any:
    """Compile a kernel: without the GIL, divisions by zero as numpy, kept on disk.

    ``loops``: as ``subroutine``, for kernels that call it. ``options`` are further ones
    of ``numba.njit``.
    """
    if function is None:
        return partial(kernel, loops=loops, **options)
    compiled = njit(nogil=True, error_model="numpy", **options)(function)
    if not config.DISABLE_JIT:
        compiled.__class__ = _Kernel
        compiled.called = subroutine(function, loops=loops, **options)
        _keep(compiled, KernelCache)
    return compiled


class _Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel; others that call it hold code of ``called``, a subroutine."""

    called: Any

    @property
    def _numba_type_(self) -> Any:
        return types.Dispatcher(self.called)

    def compile(self, sig: Any) -> Any:
        # LLVM calls Python back with the machine code: what is raised there is lost,
        # Ctrl-C too, and numba fails over the code that it then does not have
        with uninterrupted():
            return super().compile(sig)


class SourcesCache(FunctionCache):
    """numba's cache of a function, valid for one state of all kernels' sources."""

    suffix = ""

    def __init__(self, function: Callable[..., None]) -> None:
        super().__init__(function)
        base = f"{self._impl.filename_base}{self.suffix}.signed"
        sources = _digest(function.__module__)
        self._cache_file = _SignedFiles(self._cache_path, base, sources)

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        checked = bool(config.BOUNDSCHECK)
        return (*super()._index_key(signature, codegen), checked)

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_that_nothing_is_kept(error.strerror or str(error))


class SubroutineCache(SourcesCache):
    _impl_class = KeptSubroutines
    suffix = ".subroutine"  # a kernel may be one, too


class KernelCache(SourcesCache):
    """That of a kernel; what it calls is kept only if something must be compiled."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # numba would load all that it compiles with, too: most of a first call's time
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is None:
            _keep_subroutines()
        return found


def _keep_subroutines() -> None:
    """Give all of them a cache, once."""
    while SUBROUTINES:
        one = SUBROUTINES.pop()
        _keep(one, SubroutineCache)


def _keep(compiled: Any, kind: type[SourcesCache]) -> None:
    """Give a function a cache, if there is a folder for it."""
    try:
        compiled._cache = kind(compiled.py_func)
    except RuntimeError:
        _warn_that_nothing_is_kept("no folder can be written to")


def _warn_that_nothing_is_kept(why: str) -> None:
    # of the same words, so Python shows it once
    warnings.warn(
        f"smoothsp: compiled kernels cannot be kept ({why}), so each process compiles "
        "what it needs. Set NUMBA_CACHE_DIR to a folder that can be written to",
        stacklevel=2,
    )


# What reading a sound file raises that names what there is no more.
_OUTDATED = (AttributeError, EOFError, ImportError, TypeError, UnpicklingError)
_DIGEST = hashlib.sha256


class _SignedFiles(IndexDataCacheFile):
    """Files that begin with the hash of what follows, and say what they hold.

    numba reads whatever a disk gives back: a flipped bit is an error in every process
    from then on, or other machine code. Here a damaged file is moved aside, and what it
    held is compiled again. numba also writes the index before the data, and two
    processes may write at once: the index may name a file that holds another signature,
    or code of older sources.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is not None and found[:2] == (self._source_stamp, key):
            return found[2]
        return None

    def _save_index(self, overloads: Any) -> None:
        # the version for itself: what another numba wrote may not be readable
        version = self._dump(self._version)
        self._write(
            self._index_path, version + self._dump((self._source_stamp, overloads))
        )

    def _load_index(self) -> Any:
        content = io.BytesIO(self._read(self._index_path))
        try:
            if pickle.load(content) == self._version:
                stamp, overloads = pickle.load(content)
                if stamp == self._source_stamp:
                    return overloads
        except _OUTDATED:
            pass
        return {}

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _load_data(self, name: str) -> Any:
        try:
            return pickle.loads(self._read(self._data_path(name)))
        except _OUTDATED:
            return None

    def _write(self, path: str, content: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(_DIGEST(content).digest() + content)

    def _read(self, path: str) -> bytes:
        """What was written; nothing if there is no such file, or a damaged one."""
        try:
            with open(path, "rb") as file:
                digest, content = file.read(_DIGEST().digest_size), file.read()
                read = os.fstat(file.fileno())
        except OSError:
            return b""
        if digest == _DIGEST(content).digest():
            return content
        _move_aside(path, read)
        return b""


def _move_aside(path: str, damaged: os.stat_result) -> None:
    """Give a damaged file another name, and say so: no later process will.

    Unless another process was first, and maybe has written a sound one in its place.
    """
    try:
        if not os.path.samestat(os.stat(path), damaged):
            return
        os.replace(path, f"{path}.damaged")
        where = f"moved to {path}.damaged"
    except FileNotFoundError:
        return
    except OSError as error:
        where = f"{path}, not moved: {error.strerror}"
    warnings.warn(
        f"smoothsp: a compiled kernel on disk is damaged ({where}): compiled again",
        stacklevel=2,
    )


_PACKAGE = __name__.rpartition(".compilation.")[0]
# ``from smoothsp._kernels.folder import one, other``, on one line or in parentheses
_IMPORT = re.compile(
    rf"^\s*from\s+({re.escape(_PACKAGE)}[\w.]*)\s+import\s+(\([^)]*\)|.*)", re.M
)


@functools.cache
def _digest(module: str) -> str:
    """Hash of a module of ``smoothsp/_kernels`` and of all it imports from there."""
    digest = hashlib.sha256()
    for name in sorted(_reached(module)):
        digest.update(name.encode() + b"\0" + _source(name))
    return digest.hexdigest()


def _reached(module: str) -> set[str]:
    """A module, and those that it imports, directly or not."""
    found: set[str] = set()
    waiting = [module, __name__]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported(name)
    return found


@functools.cache
def _imported(module: str) -> list[str]:
    """Modules, and names in modules, that a module imports from the package."""
    found = []
    for source, names in _IMPORT.findall(_source(module).decode()):
        listed = re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.split("#")[0])
        found += [source, *(f"{source}.{name}" for name in listed)]
    return [name for name in found if _source(name)]


@functools.cache
def _source(module: str) -> bytes:
    """What the file of a module holds; nothing if there is no such module."""
    try:
        found = importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        return b""
    if found is None or found.loader is None:
        return b""
    loader: Any = found.loader
    return bytes(loader.get_data(found.origin))
