"""Topologies and the engine of circuits broken on purpose turn the laws red."""

import pytest

from tests.faults.circuits import FAULTS
from tests.faults.circuits_on_device import FAULTS as ON_DEVICE
from tests.faults.runner import verdicts


@pytest.mark.slow
@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.long)])
def test_every_deliberate_fault_turns_the_laws_red(step, tmp_path):
    found, errors = verdicts("tests.faults.circuits", tmp_path, step)
    assert found.pop("none") == "green", errors
    assert found == {name: "red" for name in list(FAULTS)[::step] if name != "none"}


@pytest.mark.slow
@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.long)])
def test_every_fault_in_the_triton_kernels_is_seen(step, tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found, errors = verdicts("tests.faults.circuits_on_device", tmp_path, step)
    assert found.pop("none") == "green", errors
    faults = list(ON_DEVICE)[::step]
    assert found == {name: "red" for name in faults if name != "none"}
