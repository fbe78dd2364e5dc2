"""Programs that tests start, bounded by what they compute and never by a clock.

On a machine under load everything takes long, and no test may fail for that. So a
program is ended when it has used more CPU time than it was given, or when at many looks
in a row nothing of it ran or was ready to run: then it waits for what does not come.
A Python program writes where it was. Needs ``/proc``; elsewhere nothing is bounded.
"""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
POLL_SECONDS, POLLS_A_LOOK = 0.02, 50
LOOKS_ASLEEP = 60
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Look(NamedTuple):
    """What the processes of a session do now, and have used."""

    alive: bool
    busy: bool
    cpu_seconds: float


def look(session: int) -> Look:
    """At the processes of a session, as the system describes them."""
    alive, busy, ticks = False, False, 0
    for process in _stats(Path("/proc").glob("[0-9]*")):
        if process["session"] == str(session) and process["state"] != "Z":
            alive = True
            ticks += sum(map(int, process["times"]))
            threads = _stats(Path(f"/proc/{process['number']}/task").glob("*"))
            busy |= any(thread["state"] in "RD" for thread in threads)
    return Look(alive, busy, ticks / TICKS_A_SECOND)


def _stats(folders: Iterable[Path]) -> Iterator[dict]:
    for folder in folders:
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        # a name may hold blanks and brackets: what counts follows the last of them
        found = stat.rpartition(")")[2].split()
        yield {
            "number": folder.name,
            "state": found[0],
            "session": found[3],
            "times": found[11:15],
        }


class Program:
    """A command in a session of its own, ended with it; ``env`` is added to ours."""

    def __init__(
        self,
        *command: object,
        cpu_seconds: float = 900,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.cpu_seconds = cpu_seconds
        self._folder = tempfile.TemporaryDirectory()
        self._out, self._err = (Path(self._folder.name) / x for x in ("out", "err"))
        self._polls, self._asleep, self._last = 0, 0, Look(True, True, 0.0)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()

    def so_far(self) -> subprocess.CompletedProcess[str]:
        """Its command, exit status (None while it runs) and what it has written."""
        status, command = self._process.poll(), self._process.args
        written = self._out.read_text(), self._err.read_text()
        return subprocess.CompletedProcess(command, status, *written)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def all_ended(self) -> bool:
        """Whether all that it started have ended too."""
        return self.ended() and not look(self._process.pid).alive

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for ``until()``, but not for a program that spins or is stuck."""
        while not until():
            time.sleep(POLL_SECONDS)
            self._polls += 1
            if self._polls % POLLS_A_LOOK == 0:
                self._guard()

    def kill(self) -> None:
        """Kill its first process only."""
        self._process.kill()

    def interrupt(self) -> None:
        """Ctrl-C, for its first process only."""
        self._process.send_signal(signal.SIGINT)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def _guard(self) -> None:
        now = look(self._process.pid)
        rests = not now.busy and now == self._last
        self._asleep, self._last = self._asleep + 1 if rests else 0, now
        if now.cpu_seconds > self.cpu_seconds:
            self._abort(f"used more than {self.cpu_seconds} s of CPU time")
        if self._asleep >= LOOKS_ASLEEP:
            self._abort("waits for what does not come")

    def _abort(self, reason: str) -> None:
        self._signal(signal.SIGABRT)
        self._process.wait()
        raise AssertionError(_story(self.so_far(), reason))


def run(
    *command: object, check: bool = True, **options: object
) -> subprocess.CompletedProcess[str]:
    """What a command ends with; options as of ``Program``. It must end with 0."""
    (done,) = run_together([command], check=check, **options)
    return done


def run_together(
    commands: Iterable[tuple[object, ...]], *, check: bool = True, **options: object
) -> list[subprocess.CompletedProcess[str]]:
    """As ``run``, several at once; if one fails, the others are not waited for."""
    with ExitStack() as stack:
        programs = [stack.enter_context(Program(*c, **options)) for c in commands]

        def failed() -> list[subprocess.CompletedProcess[str]]:
            found = [program.so_far() for program in programs]
            return [done for done in found if check and done.returncode]

        for program in programs:
            program.wait(lambda p=program: p.ended() or bool(failed()))
        for done in failed():
            raise AssertionError(_story(done, f"ended with {done.returncode}"))
        return [program.so_far() for program in programs]


def _story(done: subprocess.CompletedProcess[str], what: str) -> str:
    said = done.stderr[-5000:] or done.stdout[-5000:]
    return f"{shlex.join(done.args)} {what}:\n{said}"
