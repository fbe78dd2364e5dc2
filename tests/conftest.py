"""Set before any kernel is compiled: bounds checks, their own cache, few threads.

Also how long a run is: its order, and the sweeps that only ``--long`` runs.
"""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests import sweeps

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

for name, examples in (("short", 15), ("long", 100)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("short")

# Where a run begins, so that no long file is left for its end, and that one worker
# compiles while another has work that needs no kernels. Files that only load what
# others have compiled need not stand here.
FIRST = (
    "oracles/test_questions.py",
    "kernels/test_device_compilation.py",
    "faults/test_faults.py",
    "linear/solvers/test_bcfw.py",
    "linear/solvers/test_primal_runs.py",
    "kernels/test_triton_twins.py",
    "test_annotations.py",
    "optim/test_ranks.py",
    "recipes/test_lightning_ner.py",
    "recipes/localization/test_voc_candidates.py",
    "laws/test_circuits.py",
    "recipes/parsing/test_ud_parser.py",
    "recipes/parsing/test_constituency.py",
    "oracles/test_cuda_ops.py",
    "recipes/test_resuming.py",
    "lightning/test_ranks.py",
    "models/test_export.py",
    "benchmarks/test_races.py",
    "recipes/matching/test_matching_points.py",
    "recipes/segmentation/test_horse_segmentation.py",
    "recipes/localization/test_voc_resuming.py",
    "test_readme.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long sweeps too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: member of a sweep, run with --long")
    if config.getoption("long"):
        settings.load_profile("long")
        sweeps.long = True


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    here = Path(__file__).parent
    place = {here / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    if not config.getoption("long"):
        skip = pytest.mark.skip(reason="member of a sweep that --long runs")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)
