"""Whether Triton kernels are right on this machine's device: each is tried before use.

Before kernels answer a question for the first time, they answer it for a small batch
that has a known answer. The questions of a training step are tried together. Trials
that passed are remembered on disk, per model of the device, driver, version of Triton,
and sources of the kernels. After a trial that fails, the process computes on copies on
the CPU. ``SMOOTHSP_CHECK_DEVICE=0`` turns trials off.
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
# Relative and absolute, as in the tests; integers are equal.
TOLERANCE = {torch.float32: (2e-5, 1e-5), torch.float64: (1e-9, 1e-9)}


class KernelCheck(NamedTuple):
    """A question, how many kernels answer it, and what raises if they are wrong."""

    name: str
    num_kernels: int
    run: Callable[[torch.device], None]


_lock = threading.RLock()
_failed = False
_passed: dict[str, set[str]] = {}


def checks_enabled(tensor: Tensor) -> bool:
    """Return whether kernels for this tensor are tried: on CUDA devices, unless off."""
    return tensor.is_cuda and os.environ.get(ENV_VAR) != "0"


def is_capturing(tensor: Tensor) -> bool:
    """Return whether a CUDA graph is being captured, when nothing may be read."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def run_on_cpu(tensor: Tensor, function: Callable[..., Any], *inputs: Any) -> Any:
    """Return the answer to copies of tensors on the CPU, copied to the device of one.

    Tensors of inputs and answer may be nested in tuples and lists.

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
    """Return whether kernels may answer a question on the device of ``near``.

    At the first call of an op the checks that have not passed are run: those of the
    op, and those of ops that usually follow. While a CUDA graph is captured
    nothing is tried.
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
                    return True  # which says nothing of kernels
                except Exception as error:
                    _failed = True
                    _warn_failure(check.name, tensor.device, error)
                    break
                _store_passed(key, check.name)
    return not _failed


@contextlib.contextmanager
def _progress_message(num_kernels: int) -> Iterator[None]:
    """Write on a terminal how many kernels are compiled meanwhile."""
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
    """Raise if tensors of a device are not those of the CPU.

    ``dtype`` is that of the potentials: sums of float32 may be stored in float64.
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
    """Return what trials depend on: device, driver, versions and kernels."""
    parts = [_hash_sources(), triton_version(), torch.__version__]
    if device.type == "cuda":
        driver = Path("/proc/driver/nvidia/version")
        with contextlib.suppress(OSError):
            parts.append(driver.read_text(encoding="utf-8"))
        properties = torch.cuda.get_device_properties(device)
        # not all of it: two devices of one model are alike
        parts += [properties.name, f"{properties.major}.{properties.minor}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _hash_sources() -> str:
    """Return the hash of all Triton kernels."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS_DIR.rglob("cuda/*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _cache_path(key: str) -> Path:
    """Return where trials are remembered: beside the compiled kernels of the CPU."""
    folder = os.environ.get("NUMBA_CACHE_DIR") or KERNELS_DIR / "__pycache__"
    return Path(folder) / f"device_check.{key[:16]}.json"


def _load_passed(key: str) -> set[str]:
    if key not in _passed:
        _passed[key] = set()
        # a file that is damaged or missing: everything is tried again
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            content = json.loads(_cache_path(key).read_text())
            if content["key"] == key:
                _passed[key] = set(map(str, content["passed"]))
    return _passed[key]


def _store_passed(key: str, name: str) -> None:
    """Add a trial that passed to those of the process and those on disk."""
    _passed[key].add(name)
    path = _cache_path(key)
    content = json.dumps({"key": key, "passed": sorted(_passed[key])})
    # where nothing can be written each process tries again
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(content)
        os.replace(file.name, path)
