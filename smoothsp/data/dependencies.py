"""CoNLL-U: read and write dependency trees.

A word is a line of ten columns separated by tabs, numbered from 1 in its sentence.
Lines that begin with # are comments, ``3-4`` numbers a multi-word token, ``8.1`` an
empty node. A blank line ends a sentence. The tree is over the words; all other lines
are copied unchanged. Another relation of the root, such as ``ROOT``, is read as
``root``.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from smoothsp.data.columns import detect_format, parse_sentences, split_blocks
from smoothsp.data.conllu_rows import iter_word_rows
from smoothsp.data.examples import DependencyTree
from smoothsp.data.text_files import (
    decode_lines,
    display_name,
    print_stderr,
    read_content,
)

__all__ = [
    "NUMBER",
    "check_tree",
    "find_treebank",
    "infer_root_label",
    "make_tree",
    "parse",
    "read_dependencies",
    "read_sentences",
]
__all__ += ["replace_tree", "to_conllu"]

WORD, HEAD, LABEL, ENHANCED = 1, 6, 7, 8
NUMBER = re.compile(r"[0-9]{1,9}")
ROOT = "root"


def find_treebank(folder: str | Path) -> tuple[Path, Path]:
    """Return the files whose names end in ``train.conllu`` and ``dev.conllu``."""
    folder = Path(folder)
    if not folder.is_dir():
        state = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file, got"
            f" {state}. Give the folder that holds the files"
        )
    return _find_single_file(folder, "train"), _find_single_file(folder, "dev")


def _find_single_file(folder: Path, part: str) -> Path:
    paths = sorted(folder.glob(f"*{part}.conllu"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "none"
        raise FileNotFoundError(
            f"{folder}: expected one file whose name ends in {part}.conllu, got"
            f" {names}. Keep one treebank in the folder"
        )
    return paths[0]


def read_dependencies(
    path: str | Path, *, skip_bad: bool = False, root: str | None = None
) -> list[DependencyTree]:
    """Read the dependency trees of a CoNLL-U file.

    Parameters
    ----------
    path
        The file, which gzip may have compressed.
    skip_bad
        Leave out malformed sentences, with a line on standard error for each.
    root
        Relation of the root in the file, which is read as ``root``. By default, the
        relation that exactly the words with head 0 have.

    Raises
    ------
    ValueError
        For the first malformed sentence, with file and line.
    """
    lines = decode_lines(read_content(path, "a CoNLL-U file"), path)
    faults: list[str] = []
    fields = (line.split("\t") for line in lines)
    words = (x for x in fields if len(x) > LABEL and x[0].isdigit())
    root = root or infer_root_label((x[HEAD], x[LABEL]) for x in words)
    if root != ROOT:
        print_stderr(f"{path}: {root}, the relation of the root, read as root")
    sentences = _parse_lines(
        lines, str(path), True, faults.append if skip_bad else None, root
    )
    for fault in faults:
        print_stderr(f"warning: left out: {fault}")
    if faults and not sentences:
        raise ValueError(f"{path}: expected at least one sentence, got none")
    return sentences


def read_sentences(
    source: str | Path, bad: Callable[[str], None]
) -> list[DependencyTree] | list[str]:
    """Read sentences to be parsed, from a file or standard input (``-``).

    Accepts CoNLL-U, whose heads and labels may be missing, and column files. Running
    text, one sentence a line, is returned as strings. ``bad`` receives each error.
    """
    content = read_content(source, "a file of sentences", stdin=True)
    name = display_name(source)
    lines = decode_lines(content, name, strict=False)
    form = detect_format(name, lines)
    if form.kind == "CoNLL-U" or (
        form.has_word_numbers and form.separator == "\t" and not form.names
    ):
        return _parse_lines(lines, name, False, bad)
    file = parse_sentences(lines, name)
    for fault in file.bad:
        bad(f"{name}, {fault}")
    return file.texts or [make_tree(s.words) for s in file.sentences]


def make_tree(
    words: Sequence[str], heads: Sequence[int] = (), labels: Sequence[str] = ()
) -> DependencyTree:
    """Build a sentence with CoNLL-U lines; with ``heads``, also its tree."""
    rows = enumerate(words, start=1)
    lines = ["\t".join([str(number), word, *"________"]) for number, word in rows]
    sentence = DependencyTree(list(words), lines=lines)
    return replace_tree(sentence, heads, labels) if heads else sentence


def replace_tree(
    sentence: DependencyTree, heads: Sequence[int], labels: Sequence[str]
) -> DependencyTree:
    """Replace the tree of a sentence; enhanced dependencies of changed words go."""
    pairs = iter(zip(heads, labels, strict=True))
    lines = []
    for line in sentence.lines:
        fields = line.split("\t")
        if not fields[0].isdigit():
            lines.append(line)
            continue
        head, label = next(pairs)
        if (fields[HEAD], fields[LABEL]) != (str(head), label):
            fields[HEAD], fields[LABEL], fields[ENHANCED] = str(head), label, "_"
        lines.append("\t".join(fields))
    return replace(sentence, heads=list(heads), labels=list(labels), lines=lines)


def to_conllu(sentences: Sequence[DependencyTree]) -> str:
    """Write sentences as CoNLL-U."""
    annotated = (
        s if s.lines else make_tree(s.words, s.heads, s.labels) for s in sentences
    )
    return "".join("\n".join([*s.lines, "", ""]) for s in annotated)


def parse(content: bytes, name: str, has_trees: bool = True) -> list[DependencyTree]:
    """Read the content of a CoNLL-U file called ``name``."""
    return _parse_lines(decode_lines(content, name), name, has_trees)


def _parse_lines(
    lines: Sequence[str],
    name: str,
    has_trees: bool,
    on_error: Callable[[str], None] | None = None,
    root: str = ROOT,
) -> list[DependencyTree]:
    sentences, num_faults = [], 0
    for first, block in split_blocks(lines):
        try:
            sentences.append(_parse_sentence(block, first, has_trees, root))
        except ValueError as error:
            message = f"{name}, {error}"
            if on_error is None:
                raise ValueError(message) from error
            num_faults += 1
            on_error(message)
    if not sentences and not num_faults:
        raise ValueError(
            f"{name}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    return sentences


def infer_root_label(arcs: Iterable[tuple[int | str, str]]) -> str:
    """Return the relation that exactly the words with head 0 have, or else ``root``."""
    at_root: set[str] = set()
    elsewhere: set[str] = set()
    for head, label in arcs:
        relations = at_root if str(head) == "0" else elsewhere
        relations.add(label.split(":")[0])
    return at_root.pop() if len(at_root) == 1 and not at_root & elsewhere else ROOT


def _parse_sentence(
    block: Sequence[str], first_line: int, has_trees: bool, root: str = ROOT
) -> DependencyTree:
    rows = list(iter_word_rows(block, first_line))
    words = [fields[WORD] for _, fields in rows]
    if not has_trees:
        return DependencyTree(words, lines=list(block))
    for number, fields in rows:
        if not NUMBER.fullmatch(fields[HEAD]):
            raise ValueError(
                f"line {number}: expected the number of a head in column {HEAD + 1},"
                f" got {fields[HEAD][:60]!r}"
            )
    locations = [f"line {number}" for number, _ in rows]
    heads = [int(fields[HEAD]) for _, fields in rows]
    labels = [fields[LABEL] for _, fields in rows]
    labels = check_tree(heads, labels, locations, root)
    return DependencyTree(words, heads, labels, list(block))


def check_tree(
    heads: Sequence[int],
    labels: Sequence[str],
    locations: Sequence[str],
    root: str = ROOT,
) -> list[str]:
    """Check a tree and return its labels, with ``root`` for that of the root.

    Raises
    ------
    ValueError
        If the heads are no tree, or other words have the label of the root. The
        message begins with the location of the word.
    """
    _require_tree(heads, locations)
    _require_root_label(heads, labels, locations, root)
    return [
        ROOT + label.removeprefix(root) if head == 0 else label
        for head, label in zip(heads, labels, strict=True)
    ]


def _require_tree(heads: Sequence[int], locations: Sequence[str]) -> None:
    for word, head in enumerate(heads, start=1):
        if head > len(heads):
            raise ValueError(
                f"{locations[word - 1]}: expected a head from 0 to {len(heads)}, got"
                f" {head}"
            )
    for word, head in enumerate(heads, start=1):
        # After n steps up, only words on or below a cycle are not at the root.
        ancestor = head
        for _ in heads:
            if ancestor:
                ancestor = heads[ancestor - 1]
        if ancestor:
            raise ValueError(
                f"{locations[word - 1]}: expected heads that lead to the root, got a"
                f" cycle that word {word} hangs from"
            )
    roots = [word for word, head in enumerate(heads, start=1) if head == 0]
    if len(roots) != 1:
        raise ValueError(
            f"{locations[roots[1] - 1]}: expected one word with head 0, got"
            f" {len(roots)}"
        )


def _require_root_label(
    heads: Sequence[int], labels: Sequence[str], locations: Sequence[str], root: str
) -> None:
    """Raise unless exactly the word with head 0 has the relation of the root.

    The parser scores root labels only for arcs from the root, and the others only for
    the other arcs.
    """
    for head, label, location in zip(heads, labels, locations, strict=True):
        if not label or (label.split(":")[0] == root) != (head == 0):
            expected = repr(root) if head == 0 else f"a label other than {root!r}"
            raise ValueError(
                f"{location}: expected {expected} in column {LABEL + 1} of a word with"
                f" head {head}, got {label!r}. If the relation of the root has another"
                " name, give it as root"
            )
