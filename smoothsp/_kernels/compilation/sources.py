"""A hash of all sources that the code of a kernel depends on."""

import functools
import hashlib
import importlib.util
import re
from importlib.machinery import ModuleSpec

PACKAGE = __name__.rpartition(".compilation.")[0]
# ``from smoothsp._kernels.folder import one, other``, on one line or in parentheses
_IMPORT = re.compile(
    rf"^\s*from\s+({re.escape(PACKAGE)}[\w.]*)\s+import\s+(\([^)]*\)|.*)", re.M
)


@functools.cache
def digest(module: str) -> str:
    """Hash of a module of ``smoothsp/_kernels`` and of all it imports from there."""
    found = hashlib.sha256()
    for name in sorted(_reached(module)):
        found.update(name.encode() + b"\0" + _source(name))
    return found.hexdigest()


def _reached(module: str) -> set[str]:
    """A module, and those that it imports, directly or not."""
    found: set[str] = set()
    waiting = [module, f"{PACKAGE}.compilation.kernel"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported(name)
    return found


@functools.cache
def _imported(module: str) -> list[str]:
    """Modules, and modules of packages, that a module imports from the package."""
    found = []
    for source, names in _IMPORT.findall(_source(module).decode()):
        found.append(source)
        spec = _spec(source)
        if spec is not None and spec.submodule_search_locations is not None:
            listed = re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.split("#")[0])
            found += [f"{source}.{name}" for name in listed]
    return [name for name in found if _source(name)]


@functools.cache
def _source(module: str) -> bytes:
    """What the file of a module holds; nothing if there is no such module."""
    spec = _spec(module)
    if spec is None or spec.loader is None:
        return b""
    return bytes(spec.loader.get_data(spec.origin))


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        return None
