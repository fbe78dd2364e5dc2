"""Files of runs: whole or not there, and what is said of damaged and edited ones.

And what is said in a terminal, in a pipe, and where standard streams are closed.
"""

import ast
import errno
import os
import re
import resource
import shlex
import signal
import sys
from pathlib import Path

import pytest
import torch

import conll_ner
from runs import files, terminal
from smoothsp import checkpoints
from tests.programs import ROOT, run
from tests.sweeps import thinned

RECIPES = Path(conll_ner.__file__).parent


# --- writing ---


def test_several_processes_may_write_a_file_that_others_read(tmp_path):
    path = tmp_path / "checkpoint.pt"
    contents = [bytes([number]) * 100_000 for number in (1, 2)]
    files.write(path, lambda sink: sink.write(contents[0]))
    children = []
    for content in contents:
        child = os.fork()
        if not child:
            status = 1
            try:
                for _ in range(60):
                    files.write(path, lambda sink, own=content: sink.write(own))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for _ in range(300):
        assert path.read_bytes() in contents
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def small_disk():
    """No file may grow beyond 20,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_too_large_for_the_disk_is_named_and_the_old_one_stays(
    small_disk, tmp_path
):
    path = tmp_path / "checkpoint.pt"
    state = {"settings": {}, "best": {"w": torch.zeros(10)}}
    checkpoints.write(path, state)
    larger = state | {"model": torch.zeros(30_000)}
    with pytest.raises(OSError, match=r"checkpoint.pt: expected to write 12\d,\d+ byt"):
        checkpoints.write(path, larger)
    assert checkpoints.read(path).keys() == state.keys()
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_ends_training_with_one_line(tiny, tmp_path, monkeypatch, capsys):
    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arguments = ["conll_ner.py", "--data", tiny, "--out", str(tmp_path / "out")]
    arguments += ["--epochs", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit) as stop:
        conll_ner.command_line()
    assert re.fullmatch(
        r"error: .*model: expected to write a model, got No space left on device\. The"
        r" one that was there is untouched",
        stop.value.code,
    )


def writes(path):
    """Calls in a source file that write a file whose name they are given."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called, values = ast.unparse(node.func), [*node.args]
        values += [keyword.value for keyword in node.keywords]
        names = {value.id for value in values if isinstance(value, ast.Name)}
        texts = {x.value for x in values if isinstance(x, ast.Constant)}
        if re.search(r"\.(write_text|write_bytes|tofile)$", called):
            yield called
        if called.endswith("open") and texts & {"w", "a", "x", "wb", "ab", "xb", "a+b"}:
            yield called
        savers = re.search(r"((np|torch)\.save\w*|json\.dump|savefig)$", called)
        if savers and "sink" not in names:
            yield called


def test_recipes_write_files_in_one_way_only():
    found = {
        str(path.relative_to(RECIPES)): list(writes(path))
        for path in RECIPES.rglob("*.py")
    }
    assert len(found) > 30
    assert {name: calls for name, calls in found.items() if calls} == {
        "corpora/wnut17.py": ["part.open"],
    }


# --- reading ---


def test_damage_at_any_place_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.pt"
    tensors = {"w": torch.randn(5, 3), "b": torch.arange(3.0)}
    checkpoints.write(path, {"settings": {"seed": 1}, "best": tensors})
    whole = path.read_bytes()
    assert torch.equal(checkpoints.read(path)["best"]["w"], tensors["w"])
    where = f"{re.escape(str(path))}: expected the checkpoint of a run, got"
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place])
        with pytest.raises(ValueError, match=where):
            checkpoints.read(path)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        # some bytes, such as those of a date, mean nothing
        try:
            found = checkpoints.read(path)
        except ValueError as error:
            assert re.match(where, str(error))
        else:
            assert found["settings"] == {"seed": 1}
            assert all(torch.equal(found["best"][n], x) for n, x in tensors.items())


# --- processes that are killed ---


def test_a_file_killed_while_written_is_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    files.write(path, lambda sink: sink.write(b"old"))
    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), 9))
        files.write(path, lambda sink: sink.write(b"new"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert path.read_bytes() == b"old"
    files.write(path, lambda sink: sink.write(b"new"))
    assert path.read_bytes() == b"new"


# --- terminals ---

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from runs import terminal

def recipe():
    {body}

terminal.run(recipe)
"""


def shell(body, redirections="", **env):
    env = {"PYTHONUNBUFFERED": ""} | env
    code = SCRIPT.format(folder=str(ROOT / "recipes"), body=body)
    command = f"{sys.executable} -c {shlex.quote(code)} {redirections}"
    return run("bash", "-c", command, check=False, env=env)


@pytest.mark.parametrize(
    ("body", "redirections", "status", "said"),
    thinned(
        [
            ("print('a result')", ">&-", 0, ""),
            ("print(repr(sys.stdin.buffer.read()))", "<&- 2>&1", 0, "b''"),
            ("sys.stderr.write('a bar')", "2>&-", 0, ""),
            ("print('a'); raise ValueError('wrong')", ">&-", 1, "error: wrong"),
            (
                "print('a result')",
                ">/dev/full",
                1,
                "error: standard output: expected to write to it, got No space left on",
            ),
            (
                "print('a'); open('/dev/null/x')",
                ">&-",
                1,
                "error: /dev/null/x: expected to open it, got Not a directory",
            ),
            ("print('a\\n' * 9**6)", "| head -1", 0, ""),
            ("print('a\\n' * 9**6); sys.exit(0)", "| head -1", 0, ""),
            ("print('a'); sys.exit(0)", ">/dev/full", 1, "error: standard output: "),
        ],
        2,
    ),
)
def test_streams_that_are_closed_or_full(body, redirections, status, said):
    done = shell(body, redirections)
    assert (done.returncode, done.stderr.strip()[: len(said)]) in (
        (status, said),
        # standard error goes where standard output goes
        (status, "") if "2>&1" in redirections and said in done.stdout else (),
    )
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr
    assert done.stderr.count("\n") <= 1


def test_ctrl_c_is_status_130():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stop:
        terminal.run(interrupted)
    assert stop.value.code == 130
