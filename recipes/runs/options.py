"""Reading of command lines; errors are one line that names the option."""

import ast
import contextlib
import difflib
import inspect
import io
import itertools
import re
import sys
import textwrap
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_type_hints

import tyro

ConfigT = TypeVar("Asked")
# what tyro draws around what it says
SIDES, RULE = " │|", set("─-")
COLOUR = re.compile("\x1b\\[[0-9;]*m")
# errors of tyro, and what is written for them
REWORDINGS = (
    (r"'None', |, 'None'|\{None\}\|", ""),
    (
        r"no type matching (\S+) could be instantiated from \['(.*)'\]",
        r"expected \1, got '\2'",
    ),
    (r"invalid literal for int\(\) with base 10: (.*)", r"expected INT, got \1"),
    (r"could not convert string to float: (.*)", r"expected FLOAT, got \1"),
    (
        r"Could not find valid parse for arguments: \[(.*)\]",
        r"expected values of its type, got \1",
    ),
    (
        r"invalid choice (.*) for argument '(\S+)'. Expected one of \((.*)\)",
        r"\2: expected one of \3, got \1",
    ),
    (
        r"Missing value for argument '(\S+)'. Expected 1 values",
        r"\1: expected a value, got none",
    ),
)
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
    program = Path(sys.argv[0]).name
    if not groups:
        return tyro.cli(config_class, prog=program)
    parts = [
        (group.__name__.lower(), group, field(default_factory=group))
        for group in map(_with_help, groups[::-1])
    ]
    grouped_class = make_dataclass(
        config_class.__name__, parts, namespace={"__doc__": config_class.__doc__}
    )
    parsed = tyro.cli(grouped_class, prog=program, config=(tyro.conf.OmitArgPrefixes,))
    values = (vars(getattr(parsed, name)) for name, _, _ in parts)
    return config_class(**dict(ChainMap(*values)))


def _with_help(group: type[Any]) -> type[Any]:
    """A subclass of a dataclass with what the help says of each option.

    Docstrings of fields are filled anew, and None is neither a type nor a default.
    """
    docstrings = _field_docstrings(group)
    hints = get_type_hints(group, include_extras=True)
    namespace: dict[str, Any] = {"__doc__": group.__doc__, "__annotations__": {}}
    for option in fields(group):
        about = {"help": docstrings.get(option.name)}
        hint = hints[option.name]
        bare = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        types = [kind for kind in get_args(bare) if kind is not NoneType]
        if NoneType in get_args(bare):
            # an empty hint in place of "(default: None)"
            about |= {"metavar": "|".join(map(_metavar, types))}
            about |= {"help_behavior_hint": ""}
        namespace["__annotations__"][option.name] = Annotated[
            hint, tyro.conf.arg(**about)
        ]
        namespace[option.name] = field(
            default=option.default, default_factory=option.default_factory
        )
    return dataclass(frozen=True)(type(group.__name__, (group,), namespace))


def _field_docstrings(group: type[Any]) -> dict[str, str]:
    """Docstrings that follow the fields of a dataclass and of its bases, in a line."""
    docstrings = {}
    for base in filter(is_dataclass, reversed(group.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        for statement, following in itertools.pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                text = ast.literal_eval(following.value)
                docstrings[statement.target.id] = " ".join(text.split())
    return docstrings


def _metavar(kind: Any) -> str:
    """``INT`` for a type, ``{a,b}`` for a Literal."""
    choices = ",".join(map(str, get_args(kind)))
    return f"{{{choices}}}" if choices else kind.__name__.upper()


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
    for pattern, replacement in REWORDINGS:
        text = re.sub(pattern, replacement, text)
    return text or " ".join(box.split())


def _exit_usage(problem: str) -> NoReturn:
    print(
        f"{Path(sys.argv[0]).name}: error: {problem}; see --help for all options",
        file=sys.stderr,
    )
    sys.exit(2)
