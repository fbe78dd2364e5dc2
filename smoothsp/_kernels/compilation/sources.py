"""Hash of all source files that a kernel depends on."""

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
def source_digest(module: str) -> str:
    """Return the SHA-256 of a kernel module and all its imports from the package."""
    sha256 = hashlib.sha256()
    for name in sorted(_transitive_imports(module)):
        sha256.update(name.encode() + b"\0" + _read_source(name))
    return sha256.hexdigest()


def _transitive_imports(module: str) -> set[str]:
    """Return a module and its direct and indirect imports from the package."""
    modules: set[str] = set()
    queue = [module, f"{PACKAGE}.compilation.kernel"]
    while queue:
        name = queue.pop()
        if name not in modules:
            modules.add(name)
            queue += _direct_imports(name)
    return modules


@functools.cache
def _direct_imports(module: str) -> list[str]:
    """Return the modules that a module imports from the package, by its source text."""
    modules = []
    for source, names in _IMPORT.findall(_read_source(module).decode()):
        modules.append(source)
        spec = _find_spec(source)
        if spec is not None and spec.submodule_search_locations is not None:
            imported_names = re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.split("#")[0])
            modules += [f"{source}.{name}" for name in imported_names]
    return [name for name in modules if _read_source(name)]


@functools.cache
def _read_source(module: str) -> bytes:
    """Return the source of a module; empty if there is no such module."""
    spec = _find_spec(module)
    if spec is None or spec.loader is None:
        return b""
    return bytes(spec.loader.get_data(spec.origin))


def _find_spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):
        return None
