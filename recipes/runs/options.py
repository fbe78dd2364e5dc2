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

ConfigT = TypeVar("Asked")
# what tyro draws around what it says
SIDES, RULE = " │|", set("─-")
COLOUR = re.compile("\x1b\\[[0-9;]*m")
# options of the command line that was read last
parsed_options: set[str] = set()


def name_option(message: str) -> str:
    """An error about an argument, with the argument as the command line writes it.

    One about a file or a folder that is an option's value begins with the option.
    """
    name, colon, text = message.partition(":")
    option = f"--{name.replace('_', '-')}"
    if option in parsed_options:
        return option + colon + text
    current = ""
    for word in sys.argv[1:]:
        option_text, _, value = (
            word.partition("=") if _is_option(word) else (current, "", word)
        )
        current = _option_name(option_text)
        if current in parsed_options and value and message.startswith(f"{value}:"):
            return f"{current} {message}"
    return message


def read(config_class: Callable[..., ConfigT]) -> ConfigT:
    """What the command line says, as ``kind`` takes it; ends with status 2 if wrong."""
    option_names = _option_names(config_class)
    parsed_options.update(option_names)
    for word in filter(_is_option, map(_option_name, sys.argv[1:])):
        if word not in option_names:
            near = difflib.get_close_matches(word, option_names, n=1)
            hint = f", did you mean {near[0]}" if near else ""
            _exit_usage(f"unknown option {word}{hint}")
    # no terminal, which would have colours and letters of its own
    output = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return _parse_config(config_class)
    except SystemExit as end:
        if end.code != 2:
            return _parse_config(config_class)
    output.seek(0)
    _exit_usage(_first_sentences(COLOUR.sub("", output.read())))


def options_without(config: Any, *excluded: type) -> dict[str, Any]:
    """All options but those of some of the dataclasses that a recipe's derives from."""
    excluded_names = {name for kind in excluded for name in kind.__dataclass_fields__}
    return {name: x for name, x in vars(config).items() if name not in excluded_names}


def _parse_config(config_class: Callable[..., ConfigT]) -> ConfigT:
    """What tyro makes of the command line.

    Dataclasses that a dataclass derives from are groups of its help, the last first.
    """
    groups = [
        base for base in getattr(config_class, "__bases__", ()) if is_dataclass(base)
    ]
    if not groups:
        return tyro.cli(config_class)
    parts = [(x.__name__.lower(), x, field(default_factory=x)) for x in groups[::-1]]
    grouped_class = make_dataclass(
        config_class.__name__, parts, namespace={"__doc__": config_class.__doc__}
    )
    parsed = tyro.cli(grouped_class, config=(tyro.conf.OmitArgPrefixes,))
    values = (vars(getattr(parsed, name)) for name, _, _ in parts)
    return config_class(**dict(ChainMap(*values)))


def _option_names(config_class: Callable[..., object]) -> list[str]:
    """All that ``kind`` takes; of what is on or off also the other way round."""
    names = ["--help"]
    for name, parameter in inspect.signature(config_class).parameters.items():
        # tyro.conf.arg(name=...) renames what would be a keyword of Python
        for extra in getattr(parameter.annotation, "__metadata__", ()):
            name = getattr(extra, "name", None) or name
        option = f"--{name.replace('_', '-')}"
        names.append(option)
        if isinstance(parameter.default, bool):
            names.append(f"--no-{option[2:]}")
    return names


def _option_name(argument: str) -> str:
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


def _exit_usage(problem: str) -> NoReturn:
    print(
        f"{Path(sys.argv[0]).name}: error: {problem}; see --help for all options",
        file=sys.stderr,
    )
    sys.exit(2)
