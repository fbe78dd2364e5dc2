"""The command ``smoothsp``: use, score and describe models that were trained.

Reading the command line imports nothing heavy; each command imports what it needs.
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
# Of each kind of model: the file with its commands, and the extra that it needs.
KINDS = {
    "Tagger": ("sentences", "models"),
    "Parser": ("sentences", "models"),
    "ConstituencyParser": ("sentences", "models"),
    "Localiser": ("pictures", "localiser"),
    "Segmenter": ("pictures", "localiser"),
}
# Options that not every kind of model takes, with the value that stands for none.
OPTIONAL: dict[str, tuple[Any, tuple[str, ...]]] = {
    "show": (None, ("Tagger", "Parser", "ConstituencyParser")),
    "nbest": (None, ("Tagger", "Localiser")),
    "confidence": (False, ("Tagger",)),
    "column": ([], ("Tagger", "ConstituencyParser")),
    "word_column": (None, ("Tagger",)),
    "encoding": (None, ("Tagger",)),
    "root": (None, ("Parser",)),
}


class _Arguments(argparse.ArgumentParser):
    """Reader of a command line, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; --help lists what there is\n")


def command() -> None:
    """Run the command line of this process."""
    try:
        terminal.run_command(main, _named)
    finally:
        # Ctrl-C ends the process at once, without a traceback, while Python shuts down
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command with these arguments, by default those of this process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["compile"]:
        from smoothsp.compilation.__main__ import main as compile_all

        if status := compile_all(given[1:], "smoothsp compile"):
            raise SystemExit(status)
        return
    chosen = _read(given)
    if chosen.command == "info":
        from smoothsp.command_line import info

        info.show(chosen.model, chosen.json)
        return
    _of_model(chosen)()


def _of_model(chosen: argparse.Namespace) -> Callable[[], None]:
    """Return the command for the kind of model in the folder, with its model."""
    from smoothsp.command_line import info

    kind = info.kind_of(chosen.model)
    for name, (none, kinds) in OPTIONAL.items():
        if getattr(chosen, name, none) != none and kind not in kinds:
            raise ValueError(
                f"{name}: expected a {' or '.join(kinds)}, got a {kind}, which does"
                " not take this option"
            )
    place, extra = KINDS[kind]
    try:
        from smoothsp.models import load

        run = getattr(importlib.import_module(f"{__name__}.{place}"), chosen.command)
        model = load(chosen.model)
    except ModuleNotFoundError as error:
        if "pip install" in str(error) or str(error.name).startswith("smoothsp"):
            raise
        raise ModuleNotFoundError(
            f'a {kind} needs {error.name}: pip install "smoothsp[{extra}]"',
            name=error.name,
        ) from error
    _require_other_place(chosen)
    return lambda: run(model, chosen)


def _require_other_place(chosen: argparse.Namespace) -> None:
    """Raise if results would replace the file, or stand among the images, to read."""
    out = getattr(chosen, "out", None)
    if out is None or chosen.file == "-" or not out.exists():
        return
    source = Path(chosen.file)
    folder = source if source.is_dir() else source.parent
    if out.samefile(source) or (out.is_dir() and out.samefile(folder)):
        raise ValueError(
            f"out: expected another place than that of {chosen.file}, got {out}. Give"
            " another file or folder"
        )


def _read(given: list[str]) -> argparse.Namespace:
    """Return the options of a command; a wrong one ends the process with status 2."""
    parser = _Arguments(
        "smoothsp",
        description="Use models that smoothsp trained.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Arguments
    )
    every: dict[str, _Arguments] = {}

    def add(name: str, text: str) -> Any:
        own = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        own.add_argument(
            "model", metavar="MODEL", type=Path, help="folder of the model"
        )
        every[name] = own
        return own

    predict = add("predict", "Tag, parse, locate or segment what is in a file.")
    evaluate = add("evaluate", "Score a model on an annotated file or folder.")
    info = add("info", "Describe a model: its kind, labels, sizes, training and files.")
    every["compile"] = commands.add_parser(
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
    for own in (predict, evaluate):
        own.add_argument(
            "--skip-bad",
            action="store_true",
            help="leave out what cannot be read, and name it",
        )
        own.add_argument(
            "--column",
            action="append",
            default=[],
            help="column of the tags by number or name; of nested entities several",
        )
        own.add_argument("--word-column", help="column of the words")
        own.add_argument("--encoding", help="encoding of the file, such as latin-1")
    evaluate.add_argument("--root", help="relation of the root in a CoNLL-U file")
    for own in (evaluate, info):
        own.add_argument("--json", action="store_true", help="write one line of JSON")
    chosen, unknown = parser.parse_known_args(given)
    if unknown:
        own = every[chosen.command]
        known = [x for action in own._actions for x in action.option_strings]
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", did you mean {near[0]}" if near else ""
        what = "unknown option" if name.startswith("-") else "one argument too many,"
        own.error(f"{what} {name}{hint}")
    if chosen.command == "predict":
        if chosen.nbest is not None and chosen.nbest < 1:
            every["predict"].error(f"--nbest: expected at least 1, got {chosen.nbest}")
        if chosen.confidence and chosen.show not in ("json", "colour"):
            every["predict"].error(
                "--confidence: expected --show json or colour beside it, got columns,"
                " which have no place for it"
            )
    return chosen


def _named(message: str) -> str:
    """Return the message with the option that it begins with written as ``--name``."""
    name, colon, rest = message.partition(":")
    known = {*OPTIONAL, "out", "skip_bad"}
    return f"--{name.replace('_', '-')}{colon}{rest}" if name in known else message
