"""Reading of command lines; errors are one line that names the option."""

import contextlib
import difflib
import inspect
import io
import re
import sys
from collections import ChainMap
from collections.abc import Callable
from dataclasses import field, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import tyro

Asked = TypeVar("Asked")
# what tyro draws around what it says
SIDES, RULE = " │|", set("─-")
COLOUR = re.compile("\x1b\\[[0-9;]*m")
# options of the command line that was read last
written: set[str] = set()


def named(message: str) -> str:
    """An error about an argument, with the argument as the command line writes it.

    One about a file or a folder that is an option's value begins with the option.
    """
    name, colon, rest = message.partition(":")
    option = f"--{name.replace('_', '-')}"
    if option in written:
        return option + colon + rest
    last = ""
    for word in sys.argv[1:]:
        given, _, value = word.partition("=") if _is_option(word) else (last, "", word)
        last = _name(given)
        if last in written and value and message.startswith(f"{value}:"):
            return f"{last} {message}"
    return message


def read(kind: Callable[..., Asked]) -> Asked:
    """What the command line says, as ``kind`` takes it; ends with status 2 if wrong."""
    known = _options(kind)
    written.update(known)
    for word in filter(_is_option, map(_name, sys.argv[1:])):
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            hint = f", did you mean {near[0]}" if near else ""
            _refuse(f"unknown option {word}{hint}")
    # no terminal, which would have colours and letters of its own
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return _asked(kind)
    except SystemExit as end:
        if end.code != 2:
            return _asked(kind)
    said.seek(0)
    _refuse(_first_sentences(COLOUR.sub("", said.read())))


def of(config: Any, *left_out: type) -> dict[str, Any]:
    """All options but those of some of the dataclasses that a recipe's derives from."""
    without = {name for kind in left_out for name in kind.__dataclass_fields__}
    return {name: x for name, x in vars(config).items() if name not in without}


def _asked(kind: Callable[..., Asked]) -> Asked:
    """What tyro makes of the command line.

    Dataclasses that a dataclass derives from are groups of its help, the last first.
    """
    groups = [base for base in getattr(kind, "__bases__", ()) if is_dataclass(base)]
    if not groups:
        return tyro.cli(kind)
    parts = [(x.__name__.lower(), x, field(default_factory=x)) for x in groups[::-1]]
    whole = make_dataclass(kind.__name__, parts, namespace={"__doc__": kind.__doc__})
    found = tyro.cli(whole, config=(tyro.conf.OmitArgPrefixes,))
    values = (vars(getattr(found, name)) for name, _, _ in parts)
    return kind(**dict(ChainMap(*values)))


def _options(kind: Callable[..., object]) -> list[str]:
    """All that ``kind`` takes; of what is on or off also the other way round."""
    found = ["--help"]
    for name, parameter in inspect.signature(kind).parameters.items():
        # tyro.conf.arg(name=...) renames what would be a keyword of Python
        for extra in getattr(parameter.annotation, "__metadata__", ()):
            name = getattr(extra, "name", None) or name
        option = f"--{name.replace('_', '-')}"
        found.append(option)
        if isinstance(parameter.default, bool):
            found.append(f"--no-{option[2:]}")
    return found


def _name(argument: str) -> str:
    """An option without its value, as the help writes it."""
    return argument.partition("=")[0].replace("_", "-")


def _is_option(word: str) -> bool:
    return word.startswith("--") and word != "--" and not word.startswith("--tyro-")


def _first_sentences(box: str) -> str:
    """The text of a box without its title, up to the first rule or empty line."""
    lines = [line.strip(SIDES) for line in box.splitlines()[1:]]
    end = next((n for n, line in enumerate(lines) if not set(line) - RULE), len(lines))
    text = " ".join(lines[:end]).removeprefix("Error parsing ").rstrip(".")
    return text or " ".join(box.split())


def _refuse(what: str) -> NoReturn:
    print(
        f"{Path(sys.argv[0]).name}: error: {what}; see --help for all options",
        file=sys.stderr,
    )
    sys.exit(2)
