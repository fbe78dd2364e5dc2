"""What is said in a terminal, in a pipe, and where standard streams are closed."""

import shlex
import sys

import pytest

from runs import terminal
from tests.programs import ROOT, run

RECIPE = """
import sys
sys.path.insert(0, {folder!r})
from runs import terminal

def recipe():
    {body}

terminal.run(recipe)
"""


def shell(body, redirections="", **env):
    env = {"PYTHONUNBUFFERED": ""} | env
    code = RECIPE.format(folder=str(ROOT / "recipes"), body=body)
    command = f"{sys.executable} -c {shlex.quote(code)} {redirections}"
    return run("bash", "-c", command, check=False, env=env)


@pytest.mark.parametrize(
    ("body", "redirections", "status", "said"),
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
        ("print('a'); open('/dev/null/x')", ">&-", 1, "error: [Errno 20] Not a direc"),
        ("print('a'); raise ValueError('wrong')", ">/dev/full", 1, "error: wrong"),
        ("print('a\\n' * 9**6)", "| head -1", 0, ""),
        ("print('a\\n' * 9**6); sys.exit(0)", "| head -1", 0, ""),
        ("print('a'); sys.exit(0)", ">/dev/full", 0, ""),
    ],
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


def test_an_encoding_that_lacks_a_letter_is_named():
    done = shell("print('caf\\xe9')", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output: expected an encoding that has '\\xe9', got ascii. Run"
        " it with PYTHONIOENCODING=utf-8\n"
    )


def test_names_of_files_that_are_no_text_are_shown_as_they_are():
    done = shell("print(b'caf\\xe9'.decode(errors='surrogateescape'))", "| od -c")
    assert "c   a   f 351" in done.stdout
    assert not done.stderr


def test_output_that_is_not_kept_back_is_told_apart_too():
    done = shell("print('a result')", ">/dev/full", PYTHONUNBUFFERED="1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: expected to write to it")


def test_ctrl_c_is_status_130():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stop:
        terminal.run(interrupted)
    assert stop.value.code == 130
