"""Programs are bounded by what they compute; sweeps mark what short runs leave out."""

import ast
import itertools
import shlex
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.sweeps import thinned
from tests.test_architecture import parsed

TESTS = sorted(Path(__file__).parent.rglob("*.py"))
STARTS = {"run", "Popen", "call", "check_call", "check_output", "system"}
WAITS = {"communicate", "wait", "join", "result"}
SPIN = "def spin():\n  while True: pass\nspin()"
# The thread has to be asleep as well.
WAIT = """
import os, signal, threading
def wait(): signal.pause()
threading.Thread(target=threading.Event().wait, daemon=True).start()
wait()
"""


def calls(path):
    for node in parsed(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield path, node


def test_no_test_bounds_a_program_by_the_clock():
    for path, call in itertools.chain.from_iterable(map(calls, TESTS)):
        where = f"{path}:{call.lineno}"
        named = {keyword.arg for keyword in call.keywords}
        if call.func.attr in STARTS | WAITS:
            assert "timeout" not in named, f"{where}: bound CPU time, by tests.programs"
        owner = call.func.value
        if isinstance(owner, ast.Name) and owner.id in {"subprocess", "os"}:
            starts = call.func.attr in STARTS and path.name != "programs.py"
            assert not starts, f"{where}: start it by tests.programs"


def test_a_program_that_fails_is_named_with_what_it_wrote():
    command = [sys.executable, "-c", "raise ValueError('of its own')"]
    with pytest.raises(AssertionError, match="ValueError: of its own") as caught:
        programs.run(*command)
    assert str(caught.value).startswith(f"{shlex.join(command)} ended with 1:")


def test_a_program_that_spins_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(programs, "POLLS_A_LOOK", 5)
    command = [sys.executable, "-c", SPIN]
    with pytest.raises(AssertionError, match="in spin") as caught:
        programs.run(*command, cpu_seconds=0.1)
    reason = "used more than 0.1 s of CPU time:\nFatal Python error: Aborted"
    assert str(caught.value).startswith(f"{shlex.join(command)} {reason}")


def test_a_program_that_waits_without_end_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(programs, "LOOKS_ASLEEP", 3)
    monkeypatch.setattr(programs, "POLLS_A_LOOK", 5)
    command = [sys.executable, "-c", WAIT]
    with pytest.raises(AssertionError, match="in wait") as caught:
        programs.run(*command)
    reason = "waits for what does not come:\nFatal Python error: Aborted"
    assert str(caught.value).startswith(f"{shlex.join(command)} {reason}")


def test_children_end_with_their_program():
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {!r}])"
    code = child.format("import signal; signal.pause()")
    with programs.Program(sys.executable, "-c", code) as program:
        program.wait(program.ended)
        assert not program.all_ended()
    program.wait(program.all_ended)


def test_one_member_in_several_always_runs():
    members = [(i, str(i)) for i in range(7)]
    found = thinned(members, 3, first=1)
    assert [found[1], found[4]] == [members[1], members[4]]
    others = [found[i] for i in (0, 2, 3, 5, 6)]
    assert [x.values for x in others] == [members[i] for i in (0, 2, 3, 5, 6)]
    assert {mark.name for x in others for mark in x.marks} == {"long"}
