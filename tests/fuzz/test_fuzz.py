"""Random structures agree with their enumeration; the seed is ``FUZZ_SEED`` or 0."""

import os

import pytest

from smoothsp.oracles import Multiclass
from tests.fuzz import __main__ as command
from tests.fuzz.structures import KINDS

SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.mark.short
def test_random_chains_and_choices_agree_with_an_enumeration():
    for program in command.mismatches(
        0, ["Chain", "Multiclass", "SemiMarkov", "Subset"], 1000
    ):
        assert not program, program


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_random_structures_agree_with_an_enumeration(kind):
    for program in command.mismatches(SEED, [kind], 1000):
        assert not program, f"FUZZ_SEED={SEED}\n{program}"


def test_a_mismatch_is_a_program_that_shows_it(monkeypatch, capsys):
    """A wrong value is shrunk to a single number, and the exit status is 1."""
    right = Multiclass.log_partition
    monkeypatch.setattr(Multiclass, "log_partition", lambda self: right(self) + 1)
    monkeypatch.setattr(command, "questions_of", lambda kind: ["log_partition"])
    assert command.main(["--seed", "1", "--only", "Multiclass"]) == 1
    printed = capsys.readouterr().out
    assert "structure.log_partition()" in printed
    program = printed[printed.index("import torch") :]
    exec(program, names := {})
    assert names["structure"].scores.numel() == 1
    assert "value: expected" in program
