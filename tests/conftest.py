"""Set before any kernel is compiled: bounds checks, their own cache, few threads.

Also how long a run is: its order, and the sweeps that only ``--long`` runs.
"""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests import sweeps

# An index out of range raises instead of ending the run.
os.environ["NUMBA_BOUNDSCHECK"] = "1"
# Triton reads this when it is imported, which other libraries do too.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Compiled kernels stay beside the tests from run to run, unless the user names another
# folder: a kernel is loaded only while its sources and the checks are the same. Workers
# of a run share the folder. One that has grown over many changes starts anew.
KERNELS = Path(__file__).parents[1] / ".kernels"
LARGEST = 2**31  # bytes
if "PYTEST_XDIST_WORKER" not in os.environ and "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = str(KERNELS)
    if sum(path.stat().st_size for path in KERNELS.rglob("*")) > LARGEST:
        shutil.rmtree(KERNELS)


# Workers share the cores with the programs that tests start. Threads that wait for each
# other there double the time of a program.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start a hundred programs, none of which need read the sources anew, even where
# the shell asks for no bytecode beside them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

torch.set_num_threads(1)
# A run in the background may ignore Ctrl-C, which tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)

for name, examples in (("short", 10), ("long", 40)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("short")

# Where a run begins, so that no long file is left for its end, and that one worker
# compiles while another has work that needs no kernels. Programs that only load what
# others have compiled stand last.
FIRST = (
    "oracles/test_questions.py",
    "kernels/test_device_compilation.py",
    "kernels/test_barriers.py",
    "ptx/test_kernels.py",
    "laws/test_numbers.py",
    "ptx/test_simulator.py",
    "optim/test_ranks.py",
    "sharding/test_ranks.py",
    "mutations/test_mutations.py",
    "fuzz/test_fuzz.py",
    "linear/solvers/test_bcfw.py",
    "kernels/test_triton_twins.py",
    "oracles/test_device_check.py",
    "linear/solvers/test_primal_runs.py",
    "laws/test_circuits.py",
    "laws/test_further_questions.py",
    "laws/test_digits.py",
    "recipes/test_resuming.py",
    "optim/test_resuming.py",
    "linear/test_resuming.py",
    "oracles/circuits/test_on_device.py",
    "recipes/parsing/test_ud_parser.py",
    "kernels/test_circuit_twins.py",
    "recipes/parsing/test_constituency.py",
    "models/test_constituency_parser.py",
    "linear/problems/test_structure.py",
    "laws/test_losses.py",
    "recipes/segmentation/test_horse_segmentation.py",
    "laws/test_searches.py",
    "recipes/matching/test_matching_points.py",
    "laws/test_partial_labels.py",
    "oracles/test_chain_precision.py",
    "laws/test_losses_over_maxima.py",
    "linear/estimators/test_scikit_learn.py",
    "linear/estimators/test_extremes.py",
    "linear/estimators/test_structured_svm.py",
    "linear/estimators/test_l1_and_boosting.py",
    "linear/problems/test_hashed_chain.py",
    "linear/accelerated/test_agm.py",
    "linear/solvers/test_grid_search.py",
    "optim/svrg/test_warm_starts.py",
    "recipes/test_conll_linear.py",
    "test_guarded_memory.py",
    "publishing/test_getting_started.py",
    "models/test_export.py",
    "kernels/test_threads.py",
    "test_annotations.py",
    "test_readme.py",
)


@pytest.fixture(scope="module")
def blank() -> Iterator[None]:
    """Figures of recipes are set up, and in plain runs written without their pixels."""
    from matplotlib.figure import Figure
    from PIL import Image

    def write(figure: Figure, sink: BinaryIO, *, format: str, dpi: int) -> None:
        sides = [int(dpi * side) for side in figure.get_size_inches()]
        Image.new("RGB", sides).save(sink, format)

    with pytest.MonkeyPatch.context() as patch:
        if not sweeps.long:
            patch.setattr(Figure, "savefig", write)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="run sweeps, races and kills too"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A worker for each core, with 3 GB of memory."""
    if not hasattr(os, "sched_getaffinity"):
        return 2  # not on Linux
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // (3 * 10**9)))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "long: a sweep, a race or a kill, run with --long"
    )
    config.addinivalue_line("markers", "short: part of a long test, left out by --long")
    if config.getoption("long"):
        settings.load_profile("long")
        sweeps.long = True


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    # What is not a test has no examples in docstrings: it is imported when needed.
    if collection_path.suffix == ".py" and collection_path.name[:5] != "test_":
        return True
    return None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    here = Path(__file__).parent
    place = {here / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
    other = "short" if config.getoption("long") else "long"
    left_out = [item for item in items if item.get_closest_marker(other)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker(other)]


def pytest_collection_finish(session: pytest.Session) -> None:
    # What there is now stays: it need not be searched for garbage again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
