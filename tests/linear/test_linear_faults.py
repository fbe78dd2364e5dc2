"""Loops of linear chains, and the path, broken on purpose turn the laws red."""

import pytest

from tests.breaking import verdicts
from tests.linear.linear_faults import FAULTS


@pytest.mark.slow
def test_every_deliberate_fault_turns_the_laws_red(tmp_path):
    found, errors = verdicts("tests.linear.linear_faults", tmp_path)
    assert found.pop("none") == "green", errors
    assert found == {name: "red" for name in FAULTS if name != "none"}
