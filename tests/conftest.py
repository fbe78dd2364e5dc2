"""Set before any kernel is compiled: bounds checks, their own cache, few threads."""

import atexit
import os
import shutil
import signal
import tempfile

import torch
from hypothesis import HealthCheck, settings

# An index out of range raises instead of ending the run.
os.environ["NUMBA_BOUNDSCHECK"] = "1"
# Triton reads this when it is imported, which other libraries do too.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
_OWNER = os.getpid()


def _remove_cache(folder: str) -> None:
    if os.getpid() == _OWNER:
        shutil.rmtree(folder, ignore_errors=True)


# The workers of one run share the cache of the process that started them: a fresh one,
# or one that the user names. That is safe as long as the sources of the kernels are
# part of the key, and so are the checks.
if "PYTEST_XDIST_WORKER" not in os.environ and "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="smoothsp-numba-")
    atexit.register(_remove_cache, os.environ["NUMBA_CACHE_DIR"])


torch.set_num_threads(1)
# A run in the background may ignore Ctrl-C, which tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "smoothsp",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("smoothsp")
