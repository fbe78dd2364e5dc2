"""Wrong kernels of a device are noticed, and the CPU answers in their place."""

import importlib
import io
import itertools
import json
import warnings
from types import SimpleNamespace

import pytest
import torch

from smoothsp._kernels.compilation.launch import launch
from smoothsp.oracles._chain import cuda
from smoothsp.oracles._chain import kernel_checks as trials
from smoothsp.oracles._inference import kernel_checks
from tests.instances.circuits import semi_markov, small
from tests.kernels.cpu_references import DEVICE, WIDE, Twins, kernels, ugly_case
from tests.kernels.test_circuit_twins import choose, sums
from tests.oracles.test_cuda_ops import compare
from tests.sweeps import thinned

pytestmark = pytest.mark.skipif(
    DEVICE == "cuda", reason="kernels run in Triton's interpreter, as if on a device"
)
NARROW = torch.float32
# B, T, S, whether each step has transitions of its own
SIZES = [(3, 5, 4, False), (3, 5, 4, True), (2, 1, 17, True)]
# Module that launches the first kernel of each question that kernels answer.
BROKEN = {
    "log_partition": "forward_backward",
    "covariance": "covariance",
    "entropy": "samples",
    "decode": "viterbi",
    "decode_topk": "viterbi",
    "sample": "samples",
}
TRIED = tuple(BROKEN)


@pytest.fixture
def watched(monkeypatch, tmp_path):
    """A process that has not tried anything, on a machine where nothing was."""
    monkeypatch.setattr(kernel_checks, "checks_enabled", lambda near: True)
    monkeypatch.setattr(kernel_checks, "_failed", False)
    monkeypatch.setattr(kernel_checks, "_passed", {})
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def twins(size, dtype=WIDE):
    case = ugly_case(*size)
    return Twins.of(case, dtype, torch.Generator().manual_seed(0))


def without_last_program(kernel, programs, near, *args, **options):
    launch(kernel, programs - 1, near, *args, **options)


def not_at_all(*args, **options):
    raise RuntimeError("no compiler\nwas found")


@pytest.mark.parametrize("name", thinned(TRIED, 3))
def test_the_cpu_answers(name, watched, monkeypatch):
    monkeypatch.setattr(kernel_checks, "_failed", True)
    monkeypatch.setattr(kernels(BROKEN[name]), "launch", not_at_all)
    for size in SIZES:
        compare(name, twins(size))
    compare(name, twins(SIZES[0], NARROW))


@pytest.mark.parametrize("name", thinned(TRIED, 3))
def test_nothing_is_copied_while_a_graph_is_captured(name, watched, monkeypatch):
    monkeypatch.setattr(kernel_checks, "_failed", True)
    monkeypatch.setattr(kernel_checks, "is_capturing", lambda near: True)
    why = "runs on the CPU, since a GPU kernel failed its check; call it outside of the"
    with pytest.raises(
        RuntimeError, match=f"torch.cuda.graph: expected .* {why} graph"
    ):
        compare(name, twins(SIZES[0]))


@pytest.mark.parametrize(
    ("name", "dtype"),
    thinned(itertools.product(TRIED, (WIDE, NARROW)), 12, 8),
)
def test_right_kernels_pass(name, dtype, watched):
    for shared in (True, False):
        given = trials.example_inputs(name, dtype, 3, shared)
        getattr(cuda, name)(*given)
        if name == "log_partition":
            cuda._log_partition_by_scan(*given)
    assert not kernel_checks._failed
    (file,) = watched.iterdir()
    tried = json.loads(file.read_text())["passed"]
    together = len(trials.TRAINING_KERNELS) if name in trials.TRAINING_KERNELS else 1
    assert len(tried) == 2 * (together + (name == "log_partition"))


@pytest.mark.parametrize("name", thinned(TRIED, 3))
def test_a_wrong_kernel_is_replaced_by_the_cpu(name, watched, monkeypatch):
    wrong = not_at_all if name == "entropy" else without_last_program
    monkeypatch.setattr(kernels(BROKEN[name]), "launch", wrong)
    torch.use_deterministic_algorithms(True)  # what is not written is NaN
    try:
        with pytest.warns(UserWarning, match="failed their check") as caught:
            compare(name, twins(SIZES[0]))
    finally:
        torch.use_deterministic_algorithms(False)
    (said,) = caught
    why = "no compiler was found" if name == "entropy" else "AssertionError: Tensor"
    assert why in str(said.message)
    assert "computes on the CPU from now on" in str(said.message)
    # once, and for all questions
    for other in ("decode", name):
        compare(other, twins(SIZES[1], NARROW))
    passed = "".join(x.read_text() for x in watched.iterdir() if x.is_file())
    assert f'"{name}, ' not in passed


@pytest.mark.long
def test_right_kernels_are_tried_once_on_a_machine(watched, monkeypatch):
    tried = []
    hold = kernel_checks.assert_matches_cpu

    def counted(*answers):
        tried.append(1)
        hold(*answers)

    monkeypatch.setattr(
        "smoothsp.oracles._chain.kernel_checks.assert_matches_cpu", counted
    )
    for _ in range(2):
        for size in SIZES[:2]:
            compare("decode", twins(size))
    once = len(trials.TRAINING_KERNELS)
    # transitions that are shared, and those of each step
    assert len(tried) == 2 * once
    compare("decode", twins((1, 2, 17, False)))
    assert len(tried) == 3 * once  # and another block of states
    # another process
    kernel_checks._passed.clear()
    compare("decode", twins(SIZES[0]))
    assert len(tried) == 3 * once
    # and one that finds the file damaged
    kernel_checks._passed.clear()
    (file,) = watched.iterdir()
    file.write_text(file.read_text()[:-9])
    compare("decode", twins(SIZES[0]))
    assert len(tried) == 4 * once


@pytest.mark.long
def test_a_terminal_reads_how_many_kernels_are_compiled(watched, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    for name in ("decode", "log_partition", "entropy"):
        compare(name, twins(SIZES[0]))
    # the CPU's kernels may be compiled, too, and say so
    said = [
        x for x in terminal.getvalue().split(kernel_checks.CLEAR_LINE) if "GPU" in x
    ]
    what = "smoothsp: compiling and checking {}, once on a machine"
    assert said == [what.format(x) for x in ("2 GPU kernels", "1 GPU kernel")]


@pytest.mark.long
# the interpreter computes with masked lanes, too, and warns of their numbers
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize(
    ("file", "ask"), [("max_product", choose), ("inside_outside", sums)]
)
def test_a_wrong_kernel_of_circuits_is_replaced(file, ask, watched, monkeypatch):
    module = importlib.import_module(f"smoothsp._kernels.circuits.cuda.{file}")
    leaves, asked = small(semi_markov, NARROW)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        expected = ask(leaves, asked)
    assert len(list(watched.iterdir())) == 1
    kernel_checks._passed.clear(), [x.unlink() for x in watched.iterdir()]
    monkeypatch.setattr(module, "launch", without_last_program)
    with pytest.warns(UserWarning, match=f"circuits' {'sums' if ask is sums else 'm'}"):
        found = ask(leaves, asked)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)


def test_trials_are_for_cuda_devices_and_can_be_turned_off(monkeypatch):
    there, here = SimpleNamespace(is_cuda=True), torch.zeros(1)
    monkeypatch.delenv(kernel_checks.ENV_VAR, raising=False)
    assert kernel_checks.checks_enabled(there)
    assert not kernel_checks.checks_enabled(here)
    monkeypatch.setenv(kernel_checks.ENV_VAR, "0")
    assert not kernel_checks.checks_enabled(there)


def test_devices_of_one_model_share_what_was_tried(monkeypatch):
    names = {0: "A", 1: "A", 2: "B"}
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(name=names[device.index], major=9, minor=0),
    )
    kernel_checks.device_key.cache_clear()
    one, other, third = (
        kernel_checks.device_key(torch.device("cuda", i)) for i in names
    )
    kernel_checks.device_key.cache_clear()
    assert one == other != third
