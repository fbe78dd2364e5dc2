"""Where and with what something was measured, and how threads are pinned."""

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parents[1]
VERSIONS = ("torch", "numpy", "numba", "jax")
PEERS = ("pytorch-crf", "TorchCRF", "torch-struct", "python-crfsuite")


def pinned(threads: int) -> dict[str, str]:
    """Environment of a process that computes on so many threads.

    XLA takes the number of its threads from ``NPROC``; the flag keeps one thread from
    handing products to a pool.
    """
    count = str(threads)
    several = "true" if threads > 1 else "false"
    return os.environ | {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "NUMBA_NUM_THREADS": count,
        "NPROC": count,
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={several}",
        "JAX_PLATFORMS": "cpu",
    }


def where_measured(seed: int, device: str) -> dict[str, str]:
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit or "unknown",
        "date": datetime.date.today().isoformat(),
        "machine": processor() if device == "cpu" else graphics_processor(),
        "python": platform.python_version(),
        **{name: installed(name) for name in (*VERSIONS, *PEERS)},
        "seed": str(seed),
    }


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def processor() -> str:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        models = [x.split(":")[1].strip() for x in lines if x.startswith("model name")]
        name = models[0] if models else name
    return f"{name}, {os.cpu_count()} cores"


def graphics_processor() -> str:
    import torch

    return torch.cuda.get_device_name()
