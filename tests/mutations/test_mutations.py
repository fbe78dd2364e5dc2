"""Sources broken on purpose turn the laws red, one at a time."""

import importlib

import pytest

from tests.mutations.runner import check_lines, verdicts

PROGRAMS = (
    "chain",  # kernels of chains
    "circuits",  # topologies and the engine
    "circuits_on_device",  # kernels for GPUs
    "hinge",  # the binary dual
    "losses",  # losses that are one node
    "linear",  # loops of linear chains, and the path
    "accelerated",  # projections and accelerated methods
    "batch_solvers",  # solvers of the whole set, and their problems
    "fuzz",  # random structures
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_fault_is_in_a_line_that_there_is(program):
    if program == "circuits_on_device":
        pytest.importorskip("triton")
    check_lines(importlib.import_module(f"tests.mutations.{program}").FAULTS)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_deliberate_fault_turns_the_laws_red(program, tmp_path, monkeypatch):
    if program == "circuits_on_device":
        pytest.importorskip("triton")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    name = f"tests.mutations.{program}"
    found, errors = verdicts(name, tmp_path)
    assert found.pop("none") == "green", errors
    faults = importlib.import_module(name).FAULTS
    assert found == {fault: "red" for fault in faults if fault != "none"}
