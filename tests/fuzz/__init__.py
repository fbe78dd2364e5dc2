"""Random structures against an enumeration of their outputs."""

import os
from pathlib import Path

# The kernels of the test suite, which need not be compiled again.
os.environ.setdefault("NUMBA_BOUNDSCHECK", "1")
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[2] / ".kernels"))
