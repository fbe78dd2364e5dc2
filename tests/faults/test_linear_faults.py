"""Loops of linear chains, and the path, broken on purpose turn the laws red."""

import pytest

from tests.faults.linear import FAULTS
from tests.faults.runner import verdicts


@pytest.mark.slow
def test_every_deliberate_fault_turns_the_laws_red(tmp_path):
    found, errors = verdicts("tests.faults.linear", tmp_path)
    assert found.pop("none") == "green", errors
    assert found == {name: "red" for name in FAULTS if name != "none"}
