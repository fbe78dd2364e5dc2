"""Files of runs: whole or not there, and what is said of damaged and edited ones.

And what is said in a terminal, in a pipe, and where standard streams are closed.
"""

import ast
import dataclasses
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
from runs import checkpoint, files, terminal
from smoothsp.models.features import Vocabulary
from smoothsp.models.network import Sizes, TaggerNetwork
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
    checkpoint.save(path, state)
    larger = state | {"model": torch.zeros(30_000)}
    with pytest.raises(OSError, match=r"checkpoint.pt: expected to write 12\d,\d+ byt"):
        checkpoint.save(path, larger)
    assert checkpoint.load(path).keys() == state.keys()
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
        r"error: .*checkpoint.pt: expected to write [\d,]+ bytes, got No space left on"
        r" device. What was there is untouched",
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
        "runs/folder.py": ["(folder / LOCK).open"],
    }


# --- reading ---


def test_damage_at_any_place_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.pt"
    tensors = {"w": torch.randn(5, 3), "b": torch.arange(3.0)}
    checkpoint.save(path, {"settings": {"seed": 1}, "best": tensors})
    whole = path.read_bytes()
    assert torch.equal(checkpoint.load(path)["best"]["w"], tensors["w"])
    where = f"{re.escape(str(path))}: expected a checkpoint of this recipe, got"
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place])
        with pytest.raises(ValueError, match=where):
            checkpoint.load(path)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        # some bytes, such as those of a date, mean nothing
        try:
            found = checkpoint.load(path)
        except ValueError as error:
            assert re.match(where, str(error))
        else:
            assert found["settings"] == {"seed": 1}
            assert all(torch.equal(found["best"][n], x) for n, x in tensors.items())


@pytest.fixture
def model(tmp_path):
    """A checkpoint of a tagger that was never trained, and the text to be tagged."""
    vocabulary = Vocabulary.of([["Ann", "left"]], [])
    labels = ["O", "B-P", "I-P", "E-P", "S-P"]
    weights = TaggerNetwork(vocabulary, labels, Sizes(4)).state_dict()
    (tmp_path / "text").write_text("Ann left\n")
    return {
        "settings": {},
        "best": weights,
        "size": 4,
        "labels": labels,
        "vocabulary": dataclasses.asdict(vocabulary),
    }


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"size": 5}, "RuntimeError: Error.*size mismatch for .*word"),
        ({"labels": ["O"]}, "RuntimeError: Error.*size mismatch for"),
        ({"labels": ["O", "B-P", "I-P", "E-P", "Q-P"]}, "ValueError: labels: .*Q-P"),
        ({"labels": None}, "TypeError"),
        ({"vocabulary": {"words": []}}, "TypeError: .*argument"),
        ({"vocabulary": ...}, "KeyError: 'vocabulary'"),
        ({"best": {}}, "RuntimeError: Error.*Missing key"),
        ({"best": [1]}, "without best"),
        ({"settings": None}, "without settings"),
    ],
)
def test_what_was_edited_is_said(edit, message, model, tmp_path):
    edited = {k: v for k, v in (model | edit).items() if v is not ...}
    checkpoint.save(tmp_path / "checkpoint.pt", edited)
    text = str(tmp_path / "text")
    with pytest.raises(
        ValueError, match=f"checkpoint.pt: expected a .*got .*{message}"
    ):
        conll_ner.main(conll_ner.Config(out=tmp_path, predict=text))


def test_weights_that_are_no_numbers_are_refused(model, tmp_path):
    name = next(name for name in model["best"] if name.endswith("weight"))
    model["best"][name].view(-1)[1] = torch.nan
    checkpoint.save(tmp_path / "checkpoint.pt", model)
    text = str(tmp_path / "text")
    message = rf"expected numbers, got NaN in 1 of \d+ places of best\.{name}"
    with pytest.raises(ValueError, match=message):
        conll_ner.main(conll_ner.Config(out=tmp_path, predict=text))


def test_a_state_that_is_no_number_is_not_resumed(tmp_path):
    path = tmp_path / "checkpoint.pt"
    state = {"settings": {}, "best": {}, "dense": {"state": {0: torch.tensor([1.0])}}}
    checkpoint.save(path, state)
    checkpoint.to_resume(path, {}, True)
    state["dense"]["state"][0] /= 0 * state["dense"]["state"][0] * torch.inf
    checkpoint.save(path, state)
    with pytest.raises(ValueError, match=r"NaN in 1 of 1 places of .*dense\.state\.0"):
        checkpoint.to_resume(path, {}, True)


def test_resuming_an_edited_run_says_what_is_wrong(tiny, tmp_path):
    config = conll_ner.Config(tiny, epochs=1, out=tmp_path)
    conll_ner.main(config)
    path = tmp_path / "checkpoint.pt"
    state = checkpoint.load(path)
    del state["window"]
    checkpoint.save(path, state)
    with pytest.raises(ValueError, match=r"checkpoint.pt: .*got no window.*\. Train"):
        conll_ner.main(dataclasses.replace(config, resume=True))


@pytest.mark.parametrize(("name", "found"), [("none.txt", "nothing"), ("", "a folder")])
def test_a_text_that_is_not_there_is_named(name, found, model, tmp_path):
    checkpoint.save(tmp_path / "checkpoint.pt", model)
    text = str(tmp_path / name)
    message = f"--predict: expected a file of text, got {found} at {text}"
    with pytest.raises(FileNotFoundError, match=message):
        conll_ner.main(conll_ner.Config(out=tmp_path, predict=text))


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
