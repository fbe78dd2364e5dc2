"""CoNLL-U files: dependency trees read, and written with other heads and labels.

A word is a line of ten columns parted by tabs, numbered from 1 in its sentence; lines
that begin with # are comments, those numbered 3-4 are tokens of several words, those
numbered 8.1 are empty nodes. A blank line ends a sentence. The tree is over the words;
all other lines are kept as they are. The relation of the root is ``root``; a treebank
may have another one, ``ROOT`` say, which is read as ``root``.
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
    "from_words",
    "infer_root_label",
    "parse",
    "read_dependencies",
    "read_sentences",
]
__all__ += ["replace_tree", "to_conllu"]

WORD, HEAD, LABEL, ENHANCED = 1, 6, 7, 8
NUMBER = re.compile(r"[0-9]{1,9}")
ROOT = "root"


def find_treebank(folder: str | Path) -> tuple[Path, Path]:
    """Return the files of a folder that end in ``train`` and ``dev.conllu``."""
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file, got"
            f" {found}. Give the folder that holds the files"
        )
    return _only(folder, "train"), _only(folder, "dev")


def _only(folder: Path, part: str) -> Path:
    found = sorted(folder.glob(f"*{part}.conllu"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise FileNotFoundError(
            f"{folder}: expected one file whose name ends in {part}.conllu, got"
            f" {names}. Keep one treebank in the folder"
        )
    return found[0]


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
        Relation of the root in the file; by default the one that all words with head 0
        and no others have. It is read as ``root``.

    Raises
    ------
    ValueError
        For the first malformed sentence, with file and line.
    """
    lines = decode_lines(read_content(path, "a CoNLL-U file"), path)
    wrong: list[str] = []
    fields = (line.split("\t") for line in lines)
    words = (x for x in fields if len(x) > LABEL and x[0].isdigit())
    root = root or infer_root_label((x[HEAD], x[LABEL]) for x in words)
    if root != ROOT:
        print_stderr(f"{path}: {root}, the relation of the root, read as root")
    found = _parsed(lines, str(path), True, wrong.append if skip_bad else None, root)
    for fault in wrong:
        print_stderr(f"warning: left out: {fault}")
    if wrong and not found:
        raise ValueError(f"{path}: expected at least one sentence, got none")
    return found


def read_sentences(
    source: str | Path, bad: Callable[[str], None]
) -> list[DependencyTree] | list[str]:
    """Read sentences to be parsed, from a file or from standard input (``-``).

    Sentences of CoNLL-U, whose heads and labels may be missing, or of columns; running
    text, one sentence a line, is returned as it is. ``bad`` is called with each fault.
    """
    content = read_content(source, "a file of sentences", stdin=True)
    name = display_name(source)
    lines = decode_lines(content, name, strict=False)
    form = detect_format(name, lines)
    if form.kind == "CoNLL-U" or (form.numbered and form.by == "\t" and not form.names):
        return _parsed(lines, name, False, bad)
    file = parse_sentences(lines, name)
    for wrong in file.bad:
        bad(f"{name}, {wrong}")
    return file.texts or [from_words(s.words) for s in file.sentences]


def from_words(
    words: Sequence[str], heads: Sequence[int] = (), labels: Sequence[str] = ()
) -> DependencyTree:
    """Return a sentence with the lines of CoNLL-U, and its tree if it is given."""
    rows = enumerate(words, start=1)
    lines = ["\t".join([str(number), word, *"________"]) for number, word in rows]
    found = DependencyTree(list(words), lines=lines)
    return replace_tree(found, heads, labels) if heads else found


def replace_tree(
    sentence: DependencyTree, heads: Sequence[int], labels: Sequence[str]
) -> DependencyTree:
    """Return a sentence with another tree, and without enhanced dependencies."""
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
    whole = (
        s if s.lines else from_words(s.words, s.heads, s.labels) for s in sentences
    )
    return "".join("\n".join([*s.lines, "", ""]) for s in whole)


def parse(content: bytes, name: str, trees: bool = True) -> list[DependencyTree]:
    """Read the content of a CoNLL-U file called ``name``."""
    return _parsed(decode_lines(content, name), name, trees)


def _parsed(
    lines: Sequence[str],
    name: str,
    trees: bool,
    bad: Callable[[str], None] | None = None,
    root: str = ROOT,
) -> list[DependencyTree]:
    sentences, faults = [], 0
    for first, block in split_blocks(lines):
        try:
            sentences.append(_sentence(block, first, trees, root))
        except ValueError as error:
            wrong = f"{name}, {error}"
            if bad is None:
                raise ValueError(wrong) from error
            faults += 1
            bad(wrong)
    if not sentences and not faults:
        raise ValueError(
            f"{name}: expected at least one sentence, got none. Is this the right file,"
            " and was it copied whole?"
        )
    return sentences


def infer_root_label(arcs: Iterable[tuple[int | str, str]]) -> str:
    """Return the relation of all words with head 0 and of no others, or else root."""
    at_root: set[str] = set()
    others: set[str] = set()
    for head, label in arcs:
        own = at_root if str(head) == "0" else others
        own.add(label.split(":")[0])
    return at_root.pop() if len(at_root) == 1 and not at_root & others else ROOT


def _sentence(
    block: Sequence[str], first: int, trees: bool, root: str = ROOT
) -> DependencyTree:
    rows = list(iter_word_rows(block, first))
    words = [fields[WORD] for _, fields in rows]
    if not trees:
        return DependencyTree(words, lines=list(block))
    for number, fields in rows:
        if not NUMBER.fullmatch(fields[HEAD]):
            raise ValueError(
                f"line {number}: expected the number of a head in column {HEAD + 1},"
                f" got {fields[HEAD][:60]!r}"
            )
    where = [f"line {number}" for number, _ in rows]
    heads = [int(fields[HEAD]) for _, fields in rows]
    labels = [fields[LABEL] for _, fields in rows]
    labels = check_tree(heads, labels, where, root)
    return DependencyTree(words, heads, labels, list(block))


def check_tree(
    heads: Sequence[int], labels: Sequence[str], where: Sequence[str], root: str = ROOT
) -> list[str]:
    """Return the labels of a tree, that of the root as ``root``.

    Raises
    ------
    ValueError
        For heads that are no tree and for other labels of the root; the message begins
        with the place of the word.
    """
    _check_tree(heads, where)
    _check_labels(heads, labels, where, root)
    return [
        ROOT + label.removeprefix(root) if head == 0 else label
        for head, label in zip(heads, labels, strict=True)
    ]


def _check_tree(heads: Sequence[int], where: Sequence[str]) -> None:
    for word, head in enumerate(heads, start=1):
        if head > len(heads):
            raise ValueError(
                f"{where[word - 1]}: expected a head from 0 to {len(heads)}, got {head}"
            )
    for word, head in enumerate(heads, start=1):
        above = head
        for _ in heads:
            if above:
                above = heads[above - 1]
        if above:
            raise ValueError(
                f"{where[word - 1]}: expected heads that lead to the root, got a cycle"
                f" that word {word} hangs from"
            )
    roots = [word for word, head in enumerate(heads, start=1) if head == 0]
    if len(roots) != 1:
        raise ValueError(
            f"{where[roots[1] - 1]}: expected one word with head 0, got {len(roots)}"
        )


def _check_labels(
    heads: Sequence[int], labels: Sequence[str], where: Sequence[str], root: str
) -> None:
    """A parser gives the label of the root to one word, the other labels to others."""
    for head, label, place in zip(heads, labels, where, strict=True):
        if not label or (label.split(":")[0] == root) != (head == 0):
            expected = repr(root) if head == 0 else f"a label other than {root!r}"
            raise ValueError(
                f"{place}: expected {expected} in column {LABEL + 1} of a word with"
                f" head {head}, got {label!r}. If the relation of the root has another"
                " name, give it as root"
            )
