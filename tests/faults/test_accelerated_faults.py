"""Projections and accelerated methods, broken on purpose, turn the laws red."""

import pytest

from tests.faults.accelerated import FAULTS
from tests.faults.runner import verdicts


@pytest.mark.slow
@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.long)])
def test_every_deliberate_fault_turns_the_laws_red(step, tmp_path):
    found, errors = verdicts("tests.faults.accelerated", tmp_path, step)
    assert found.pop("none") == "green", errors
    assert found == {name: "red" for name in list(FAULTS)[::step] if name != "none"}
