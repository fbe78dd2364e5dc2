"""The command ``smoothsp``: apply, evaluate and describe trained models.

Arguments are parsed before PyTorch is imported; each command imports its own modules.
"""

import argparse
import difflib
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from smoothsp.command_line import terminal

__all__ = ["command", "main"]

SHOWS = ("columns", "json", "colour")
# Class of a model -> module with its commands, and the extra to install.
KINDS = {
    "Tagger": ("sentences", "models"),
    "Parser": ("sentences", "models"),
    "ConstituencyParser": ("sentences", "models"),
    "Localiser": ("pictures", "localiser"),
    "Segmenter": ("pictures", "localiser"),
}
# Options of some models only: value if absent, and classes that take the option.
OPTIONAL: dict[str, tuple[Any, tuple[str, ...]]] = {
    "show": (None, ("Tagger", "Parser", "ConstituencyParser")),
    "nbest": (None, ("Tagger", "Localiser")),
    "confidence": (False, ("Tagger",)),
    "column": ([], ("Tagger", "ConstituencyParser")),
    "word_column": (None, ("Tagger",)),
    "encoding": (None, ("Tagger",)),
    "root": (None, ("Parser",)),
}


class _ArgumentParser(argparse.ArgumentParser):
    """Argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see --help for all options\n")


def command() -> None:
    """Run the command line of this process."""
    try:
        terminal.run_command(main, _name_option)
    finally:
        # Ctrl-C ends the process at once, without a traceback, while Python shuts down
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command with these arguments; default: those of this process."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv[:1] == ["compile"]:
        from smoothsp.compilation.__main__ import main as compile_all

        if status := compile_all(argv[1:], "smoothsp compile"):
            raise SystemExit(status)
        return
    options = _parse_arguments(argv)
    if options.command == "info":
        from smoothsp.command_line import info

        info.show(options.model, options.json)
        return
    _load_command(options)()


def _load_command(options: argparse.Namespace) -> Callable[[], None]:
    """Load the model in the folder; return a function that runs the command on it."""
    from smoothsp.command_line import info

    kind = info.kind_of(options.model)
    for name, (default, kinds) in OPTIONAL.items():
        if getattr(options, name, default) != default and kind not in kinds:
            raise ValueError(
                f"{name}: expected a {' or '.join(kinds)}, got a {kind}, which does"
                " not take this option"
            )
    module_name, extra = KINDS[kind]
    try:
        from smoothsp.models import load

        run = getattr(
            importlib.import_module(f"{__name__}.{module_name}"), options.command
        )
        model = load(options.model)
    except ModuleNotFoundError as error:
        if "pip install" in str(error) or str(error.name).startswith("smoothsp"):
            raise
        raise ModuleNotFoundError(
            f'a {kind} needs {error.name}: pip install "smoothsp[{extra}]"',
            name=error.name,
        ) from error
    _require_separate_output(options)
    return lambda: run(model, options)


def _require_separate_output(options: argparse.Namespace) -> None:
    """Raise if ``--out`` is the input file or the folder of the input images."""
    out = getattr(options, "out", None)
    if out is None or options.file == "-" or not out.exists():
        return
    source = Path(options.file)
    folder = source if source.is_dir() else source.parent
    if out.samefile(source) or (out.is_dir() and out.samefile(folder)):
        raise ValueError(
            f"out: expected another place than {options.file}, got {out}. Give"
            " another file or folder"
        )


def _parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the options of a command; exit with status 2 if they are invalid."""
    parser = _ArgumentParser(
        "smoothsp",
        description="Use models that smoothsp trained.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_ArgumentParser
    )
    subparsers: dict[str, _ArgumentParser] = {}

    def add_command(name: str, text: str) -> Any:
        subparser = commands.add_parser(
            name, help=text, description=text, allow_abbrev=False
        )
        subparser.add_argument(
            "model", metavar="MODEL", type=Path, help="folder of the model"
        )
        subparsers[name] = subparser
        return subparser

    predict = add_command(
        "predict", "Tag, parse, locate or segment the contents of a file."
    )
    evaluate = add_command("evaluate", "Score a model on an annotated file or folder.")
    info = add_command(
        "info", "Describe a model: its kind, labels, sizes, training and files."
    )
    subparsers["compile"] = commands.add_parser(
        "compile", help="Compile all kernels in advance."
    )
    predict.add_argument(
        "file",
        metavar="FILE",
        help="text, columns, CoNLL-U or bracketed trees, - for standard input;"
        " an image or a folder of images",
    )
    evaluate.add_argument(
        "file", metavar="FILE", help="file or folder as for training, with annotations"
    )
    predict.add_argument(
        "--show",
        choices=SHOWS,
        help="of sentences: columns (CoNLL-U and brackets for trees), lines of JSON,"
        " or with a tagger coloured text; columns by default",
    )
    predict.add_argument(
        "--nbest", type=int, metavar="N", help="taggings of a sentence, or boxes"
    )
    predict.add_argument(
        "--confidence",
        action="store_true",
        help="with --show json or colour: probabilities of taggings and spans",
    )
    predict.add_argument(
        "-o",
        "--out",
        type=Path,
        help="file for the results, or folder for those of images",
    )
    for subparser in (predict, evaluate):
        subparser.add_argument(
            "--skip-bad",
            action="store_true",
            help="skip inputs that cannot be read, with a warning for each",
        )
        subparser.add_argument(
            "--column",
            action="append",
            default=[],
            help="column of the tags by number or name; of nested entities several",
        )
        subparser.add_argument("--word-column", help="column of the words")
        subparser.add_argument(
            "--encoding", help="encoding of the file, such as latin-1"
        )
    evaluate.add_argument("--root", help="relation of the root in a CoNLL-U file")
    for subparser in (evaluate, info):
        subparser.add_argument(
            "--json", action="store_true", help="write one line of JSON"
        )
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        subparser = subparsers[options.command]
        option_strings = [
            x for action in subparser._actions for x in action.option_strings
        ]
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, option_strings, n=1)
        hint = f", did you mean {near[0]}" if near else ""
        problem = "unknown option" if name.startswith("-") else "one argument too many,"
        subparser.error(f"{problem} {name}{hint}")
    if options.command == "predict":
        if options.nbest is not None and options.nbest < 1:
            subparsers["predict"].error(
                f"--nbest: expected at least 1, got {options.nbest}"
            )
        if options.confidence and options.show not in ("json", "colour"):
            subparsers["predict"].error(
                "--confidence: expected --show json or colour beside it, got columns,"
                " which do not show it"
            )
    return options


def _name_option(message: str) -> str:
    """Return the message with a leading argument name written as ``--name``."""
    name, colon, text = message.partition(":")
    option_names = {*OPTIONAL, "out", "skip_bad"}
    return (
        f"--{name.replace('_', '-')}{colon}{text}" if name in option_names else message
    )
