"""Checks of Triton kernels against the CPU, before their first use on a device.

Before its first use an op runs on a small batch, and its results must match those of
the CPU. The ops of a training step are checked together. Checks that passed are stored
on disk, per model of the device, driver, version of Triton, and sources of the kernels.
After a check that fails, the process computes on copies on the CPU.
``SMOOTHSP_CHECK_DEVICE=0`` disables the checks.
"""

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

import smoothsp._kernels
from smoothsp._kernels.compilation.launch import triton_version

KERNELS_DIR = Path(smoothsp._kernels.__path__[0])
CLEAR_LINE = "\r\x1b[K"
ENV_VAR = "SMOOTHSP_CHECK_DEVICE"
# Relative and absolute tolerances, as in the tests; integers must be equal.
TOLERANCE = {torch.float32: (2e-5, 1e-5), torch.float64: (1e-9, 1e-9)}


class KernelCheck(NamedTuple):
    """Name of an op, its number of kernels, and a check that raises if they differ."""

    name: str
    num_kernels: int
    run: Callable[[torch.device], None]


_lock = threading.RLock()
_failed = False
_passed: dict[str, set[str]] = {}


def checks_enabled(tensor: Tensor) -> bool:
    """Return whether kernels are checked: on CUDA devices, unless disabled."""
    return tensor.is_cuda and os.environ.get(ENV_VAR) != "0"


def is_capturing(tensor: Tensor) -> bool:
    """Return whether a CUDA graph is being captured, so that no value can be read."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def run_on_cpu(tensor: Tensor, function: Callable[..., Any], *inputs: Any) -> Any:
    """Call a function on CPU copies of the inputs; move results to ``tensor.device``.

    Tensors of inputs and results may be nested in tuples and lists.

    Raises
    ------
    RuntimeError
        While a CUDA graph is captured.
    """
    if is_capturing(tensor):
        why = ", since a GPU kernel failed its check" if _failed else ""
        raise RuntimeError(
            "torch.cuda.graph: expected computations on the device alone, got one that "
            f"runs on the CPU{why}; call it outside of the graph"
        )
    cpu_inputs = tree_map_only(Tensor, lambda x: x.detach().cpu(), inputs)
    return tree_map_only(Tensor, lambda x: x.to(tensor.device), function(*cpu_inputs))


def kernels_pass(
    tensor: Tensor, name: str, list_checks: Callable[[], Iterable[KernelCheck]]
) -> bool:
    """Return whether the kernels of an op are usable on the device of ``tensor``.

    The first call of an op runs the checks that have not passed: those of the op, and
    those of ops that usually follow. No check runs while a CUDA graph is captured.
    """
    global _failed
    if not checks_enabled(tensor):
        return True
    if _failed:
        return False
    key = device_key(tensor.device)
    if name in _load_passed(key):
        return True
    if is_capturing(tensor):
        return True
    with _lock:
        pending = (
            []
            if _failed
            else [x for x in list_checks() if x.name not in _load_passed(key)]
        )
        with _progress_message(sum(check.num_kernels for check in pending)):
            for check in pending:
                try:
                    check.run(tensor.device)
                except torch.OutOfMemoryError:
                    return True  # no evidence against the kernels: check again later
                except Exception as error:
                    _failed = True
                    _warn_failure(check.name, tensor.device, error)
                    break
                _store_passed(key, check.name)
    return not _failed


@contextlib.contextmanager
def _progress_message(num_kernels: int) -> Iterator[None]:
    """Show the number of kernels being compiled, on a terminal only."""
    is_terminal = num_kernels > 0 and sys.stderr.isatty()
    if is_terminal:
        description = (
            f"{num_kernels} GPU kernel{'s' * (num_kernels > 1)}, once on a machine"
        )
        sys.stderr.write(f"{CLEAR_LINE}smoothsp: compiling and checking {description}")
        sys.stderr.flush()
    try:
        yield
    finally:
        if is_terminal:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()


def assert_matches_cpu(actual: Any, expected: Any, dtype: torch.dtype) -> None:
    """Raise if results of a device differ from those of the CPU.

    ``dtype`` of the potentials sets the tolerance: sums of float32 may be stored in
    float64.
    """
    for left, right in zip(actual, expected, strict=True):
        rtol, atol = TOLERANCE[dtype] if left.is_floating_point() else (0, 0)
        torch.testing.assert_close(left.cpu(), right, rtol=rtol, atol=atol)


def _warn_failure(name: str, device: torch.device, error: Exception) -> None:
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    warnings.warn(
        f"smoothsp: the GPU kernels of {name} failed their check on {device} "
        f"({cause[:600]}). This process computes on the CPU from now on, on copies: "
        f"results are correct, but slower. Set {ENV_VAR}=0 to use the kernels without "
        "the check",
        stacklevel=2,
    )


@functools.cache
def device_key(device: torch.device) -> str:
    """Return a hash of device model, driver, versions and kernel sources."""
    parts = [_hash_sources(), triton_version(), torch.__version__]
    if device.type == "cuda":
        driver = Path("/proc/driver/nvidia/version")
        with contextlib.suppress(OSError):
            parts.append(driver.read_text(encoding="utf-8"))
        properties = torch.cuda.get_device_properties(device)
        # not the serial number or index: a check holds for all devices of a model
        parts += [properties.name, f"{properties.major}.{properties.minor}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _hash_sources() -> str:
    """Return the hash of all Triton kernels."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS_DIR.rglob("cuda/*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _cache_path(key: str) -> Path:
    """Return the file of passed checks, beside the compiled kernels of the CPU."""
    folder = os.environ.get("NUMBA_CACHE_DIR") or KERNELS_DIR / "__pycache__"
    return Path(folder) / f"device_check.{key[:16]}.json"


def _load_passed(key: str) -> set[str]:
    if key not in _passed:
        _passed[key] = set()
        # without a readable file all checks run again
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads(_cache_path(key).read_text())
            if content["key"] == key:
                _passed[key] = set(map(str, content["passed"]))
    return _passed[key]


def _store_passed(key: str, name: str) -> None:
    """Store a check that passed, in the process and on disk."""
    _passed[key].add(name)
    path = _cache_path(key)
    content = json.dumps({"key": key, "passed": sorted(_passed[key])})
    # where the folder is read-only, each process repeats the checks
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(content)
        # atomic, so that processes that start together never read half a file
        os.replace(file.name, path)
