"""Examples of any form: a path, dataclasses, tuples, or rows of dictionaries."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from smoothsp.data import dependencies, trees
from smoothsp.data.columns import TAG_KEYS, WORD_KEYS
from smoothsp.data.examples import (
    AnnotatedImage,
    ConstituencyTree,
    DependencyTree,
    TaggedSentence,
)
from smoothsp.data.tagged_files import read_tagged
from smoothsp.data.text_files import find_lone_surrogate

__all__ = ["as_dependencies", "as_images", "as_tagged", "as_trees"]

WORDS = (*WORD_KEYS, "form")
HEADS, RELATIONS = ("heads", "head"), ("labels", "deprel", "deprels", "rels")
IMAGE, OBJECTS = ("path", "image", "image_path"), "objects"
CATEGORIES = ("category", "categories", "label", "labels")
# what data sets write for the head of a token of several words
NO_HEAD = (None, "None", "_")


def as_tagged(
    data: Any, *, column: str | int | None = None, name: str = "data"
) -> list[TaggedSentence]:
    """Return sentences with tags.

    Parameters
    ----------
    data
        A path that ``read_tagged`` reads; or ``TaggedSentence``, tuples of words and
        tags, or dictionaries with ``tokens`` or ``words`` and ``ner_tags``, ``tags`` or
        ``labels``, as Hugging Face ``datasets`` gives them. Numbers as tags are named
        by ``data.features``.
    column
        Column of the tags, or their key in dictionaries.
    name
        What messages call the examples.

    Raises
    ------
    TypeError, ValueError
        With the number of the example, from 0, and the field.

    Examples
    --------
    >>> as_tagged([(["Orla", "left"], ["B-PER", "O"])])
    [TaggedSentence(words=['Orla', 'left'], tags=['B-PER', 'O'], document=0)]
    """
    if isinstance(data, str | PathLike):
        return read_tagged(Path(data), column=column)
    keys: dict[str, Sequence[Any]]
    keys = {
        "words": WORDS,
        "tags": (column,) if column else TAG_KEYS,
        "document": (),
    }
    found = []
    for number, example in enumerate(_listed(data, name)):
        given = _Given(data, name, number, example, TaggedSentence, keys)
        words = given.words()
        tags = given.strings("tags", words, or_none=True)
        if isinstance(example, TaggedSentence):
            found.append(example)
            continue
        document = given.values.get("document", 0)
        if type(document) is not int:
            raise given.wrong("document", "a number", document)
        found.append(TaggedSentence(words, tags, document))
    return found


def as_dependencies(data: Any, *, name: str = "data") -> list[DependencyTree]:
    """Return dependency trees.

    Parameters
    ----------
    data
        A path that ``read_dependencies`` reads; or ``DependencyTree``, tuples of words,
        heads and labels, or dictionaries with ``tokens`` or ``words``, ``head`` or
        ``heads``, and ``deprel`` or ``labels``. Heads count from 1; 0 is the root.
    name
        What messages call the examples.

    Raises
    ------
    TypeError, ValueError
        With the number of the example, from 0, and the field; also for heads that are
        no tree.

    Examples
    --------
    >>> (tree,) = as_dependencies([(["dogs", "sleep"], [2, 0], ["nsubj", "root"])])
    >>> tree.heads
    [2, 0]
    """
    if isinstance(data, str | PathLike):
        return dependencies.read_dependencies(Path(data))
    keys = {"words": WORDS, "heads": HEADS, "labels": RELATIONS}
    given = [
        _Given(data, name, number, example, DependencyTree, keys)
        for number, example in enumerate(_listed(data, name))
    ]
    rows = [(one, *one.arcs()) for one in given]
    root = dependencies.infer_root_label(
        (head, label) for _, _, heads, labels in rows
        for head, label in zip(heads, labels, strict=True)
    )  # fmt: skip
    found = []
    for one, words, heads, labels in rows:
        where = [f"{one.where}, word {n}" for n in range(1, len(words) + 1)]
        labels = dependencies.check_tree(heads, labels, where, root)
        found.append(
            one.example
            if isinstance(one.example, DependencyTree) and one.example.labels == labels
            else dependencies.from_words(words, heads, labels)
        )
    return found


def as_trees(data: Any, *, name: str = "data") -> list[ConstituencyTree]:
    """Return constituency trees.

    Parameters
    ----------
    data
        A path that ``read_trees`` reads; or ``ConstituencyTree``, tuples of words and
        spans, dictionaries with ``words`` or ``tokens`` and ``spans``, bracketed
        strings, or trees of NLTK. A span is a label and its first and last word, from
        0, inclusive.
    name
        What messages call the examples.

    Raises
    ------
    TypeError, ValueError
        With the number of the example, from 0, and the field; also for spans of which
        one crosses another, unless they are those of a ``ConstituencyTree``.

    Examples
    --------
    >>> as_trees(["(S (NN dogs) (VB sleep))"])[0].spans
    [('S', 0, 1)]
    """
    if isinstance(data, PathLike) or (isinstance(data, str) and "(" not in data):
        return trees.read_trees(Path(data))
    keys: dict[str, Sequence[str]]
    keys = {"words": WORDS, "spans": ("spans", "entities"), "tags": ("tags",)}
    found = []
    for number, example in enumerate(
        _listed([data] if isinstance(data, str) else data, name)
    ):
        if hasattr(example, "pformat"):
            example = example.pformat()
        if isinstance(example, str):
            place = f"{name}[{number}]"
            if half := find_lone_surrogate(example):
                raise ValueError(f"{place}: expected text, got {_half(half)}")
            found += trees.parse(example.encode(), place)
            continue
        given = _Given(data, name, number, example, ConstituencyTree, keys)
        words, spans = given.words(), given.sequence("spans")
        for span in spans:
            if not _is_span(span, len(words)):
                expected = f"a label and two words from 0 to {len(words) - 1}"
                raise given.wrong("spans", expected, span)
        if isinstance(example, ConstituencyTree):
            found.append(example)
            continue
        whole = (0, len(words) - 1)
        ordered = sorted(((str(a), b, c) for a, b, c in spans), key=_outer_first)
        if crossing := _crossing(ordered):
            raise given.wrong("spans", "spans of which none crosses another", crossing)
        if not any(span[1:] == whole for span in ordered):
            ordered.insert(0, (trees.TOP, *whole))
        tags = list(given.values.get("tags") or ())
        if tags and not (
            len(tags) == len(words) and all(isinstance(x, str) for x in tags)
        ):
            raise given.wrong("tags", f"{len(words)} strings", tags)
        found.append(ConstituencyTree(words, trees.join_unary_chains(ordered), tags))
    return found


def as_images(
    data: Any, *, part: str = "train", kind: str | None = None, name: str = "data"
) -> list[AnnotatedImage]:
    """Return images with labelled boxes.

    Parameters
    ----------
    data
        A path that ``read_boxes`` reads; or ``AnnotatedImage``, tuples of path, boxes
        and labels, or dictionaries with ``path`` or ``image``, ``boxes`` and
        ``labels``. Boxes are ``(x0, y0, x1, y1)`` in pixels. In ``objects`` of Hugging
        Face ``datasets``, ``bbox`` is left, top, width and height, as in COCO, and
        ``category`` the label.
    part, kind
        As ``read_boxes`` takes them, for a path.
    name
        What messages call the examples.

    Returns
    -------
    list
        Images; what lies outside of them is cut off from boxes.

    Raises
    ------
    TypeError, ValueError
        With the number of the example, from 0, and the field; also for boxes that lie
        wholly outside their image.
    """
    from smoothsp.data import boxes

    if isinstance(data, str | PathLike):
        return boxes.read_boxes(Path(data), part=part, kind=kind)
    keys = {"path": IMAGE, "boxes": ("boxes",), "labels": ("labels",), "difficult": ()}
    found = []
    for number, example in enumerate(_listed(data, name)):
        if isinstance(example, AnnotatedImage) and example.size:
            found.append(example)
            continue
        corners, features = True, getattr(data, "features", None)
        if isinstance(example, Mapping) and isinstance(example.get(OBJECTS), Mapping):
            inner, corners = example[OBJECTS], False
            category = next((x for x in CATEGORIES if x in inner), CATEGORIES[0])
            example = {key: example[key] for key in IMAGE if key in example}
            example |= {"boxes": inner.get("bbox"), "labels": inner.get(category)}
            features = {"labels": _inner(_feature(features, OBJECTS), category)}
        given = _Given(data, name, number, example, AnnotatedImage, keys, features)
        path, given_boxes = given.image(), given.sequence("boxes")
        labels = given.strings("labels", given_boxes, of="boxes")
        difficult = given.sequence("difficult") if given.values.get("difficult") else []
        for one in difficult:
            if not (isinstance(one, tuple | list) and len(one) == 2 and one[0]):
                raise given.wrong("difficult", "pairs of label and box", one)
        found.append(
            boxes.make_annotated_image(
                path, given_boxes, [str(label) for label in labels or ()], given.where,
                corners=corners, difficult=difficult,
            )
        )  # fmt: skip
    return found


def _listed(data: Any, name: str) -> list[Any]:
    if isinstance(data, Mapping):
        names = ", ".join(map(str, list(data)[:5]))
        raise TypeError(
            f"{name}: expected a path, examples or rows, got a dictionary of {names}."
            " Give one part of it, or a list of dictionaries"
        )
    if isinstance(data, bytes | str) or not isinstance(data, Iterable):
        raise TypeError(
            f"{name}: expected a path, examples or rows, got {type(data).__name__}"
        )
    found = list(data)
    if not found:
        raise ValueError(f"{name}: expected at least one example, got none")
    return found


def _is_span(span: Any, size: int) -> bool:
    try:
        label, first, last = span
    except (TypeError, ValueError):
        return False
    numbers = type(first) is int and type(last) is int
    named = isinstance(label, str) and bool(label) and not find_lone_surrogate(label)
    return named and numbers and 0 <= first <= last < size


def _half(half: str) -> str:
    return f"half of a surrogate pair, {half!r}"


def _crossing(spans: Iterable[tuple[str, int, int]]) -> str | None:
    """Return the first span that crosses one before it; outer spans come first."""
    around: list[tuple[str, int, int]] = []
    for span in spans:
        while around and around[-1][2] < span[1]:
            around.pop()
        if around and around[-1][2] < span[2]:
            return f"{span} with {around[-1]}"
        around.append(span)
    return None


def _outer_first(span: tuple[str, int, int]) -> tuple[int, int]:
    return span[1], -span[2]


class _Given:
    """The fields of an example, by name."""

    def __init__(
        self,
        data: Any,
        name: str,
        number: int,
        example: Any,
        kind: type,
        keys: Mapping[str, Sequence[str]],
        features: Any = None,
    ) -> None:
        self.name, self.where, self.example = name, f"{name}[{number}]", example
        self.features = (
            getattr(data, "features", None) if features is None else features
        )
        self.names = {field: field for field in keys}
        if isinstance(example, kind):
            self.values = {field: getattr(example, field) for field in keys}
        elif isinstance(example, Mapping):
            there = {
                field: next((key for key in own if key in example), None)
                for field, own in keys.items()
            }
            for field, own in keys.items():
                if own and there[field] is None and field != "tags":
                    raise ValueError(
                        f"{self.where}: expected {' or '.join(own)}, got"
                        f" {', '.join(map(str, example))}"
                    )
            self.names = {field: key for field, key in there.items() if key}
            self.values = {field: example[key] for field, key in self.names.items()}
        elif isinstance(example, tuple | list) and 1 < len(example) <= len(keys):
            self.values = dict(zip(keys, example, strict=False))
        else:
            raise TypeError(
                f"{self.where}: expected a {kind.__name__}, a tuple of"
                f" {', '.join(keys)}, or a dictionary, got {type(example).__name__}"
            )

    def wrong(self, field: str, expected: str, value: Any) -> ValueError:
        name = self.names.get(field, field)
        return ValueError(
            f"{self.where}, {name}: expected {expected}, got {str(value)[:60]}"
        )

    def sequence(self, field: str) -> list[Any]:
        value: Any = self.values.get(field)
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise self.wrong(field, "a list", value)
        return list(value)

    def words(self) -> list[str]:
        found = self.sequence("words")
        for word in found:
            if not isinstance(word, str) or not word:
                raise self.wrong("words", "strings that are not empty", repr(word))
            self._check_text("words", word)
        if not found:
            raise self.wrong("words", "at least one word", "none")
        return found

    def strings(
        self,
        field: str,
        words: Sequence[Any],
        *,
        or_none: bool = False,
        of: str = "words",
    ) -> list[Any] | None:
        """Return one string for each word, or the name of its number."""
        if or_none and self.values.get(field) is None:
            if isinstance(self.example, Mapping) and field not in self.values:
                there = ", ".join(map(str, self.example))
                raise self.wrong(field, "the key of the tags", there)
            return None
        found = self.sequence(field)
        if len(found) != len(words):
            raise self.wrong(field, f"as many as {of}, {len(words)}", f"{len(found)}")
        if any(type(x) is int for x in found):
            found = [self._name(field, x) for x in found]
        for value in found:
            if not (isinstance(value, str) and value) and not (
                or_none and value is None
            ):
                raise self.wrong(field, "strings", repr(value))
            self._check_text(field, value or "")
        return found

    def _check_text(self, field: str, text: str) -> None:
        if half := find_lone_surrogate(text):
            raise self.wrong(field, "text", _half(half))

    def _name(self, field: str, number: Any) -> Any:
        names = _names(_feature(self.features, self.names.get(field, field)))
        if names is None:
            raise self.wrong(
                field,
                f"strings, or numbers that {self.name}.features names (ClassLabel)",
                f"{number}. Replace numbers by names",
            )
        if type(number) is not int or not 0 <= number < len(names):
            raise self.wrong(field, f"numbers from 0 to {len(names) - 1}", number)
        return names[number]

    def arcs(self) -> tuple[list[str], list[int], list[str]]:
        """Return words, heads and labels, without tokens of several words."""
        words, heads = self.words(), self.sequence("heads")
        labels = self.strings("labels", words) or []
        if len(heads) != len(words):
            raise self.wrong("heads", f"as many as words, {len(words)}", len(heads))
        rows = list(zip(words, heads, labels, strict=True))
        if isinstance(self.example, Mapping):
            rows = [row for row in rows if row[1] not in NO_HEAD]
        found = []
        for word, head, label in rows:
            if isinstance(head, str) and dependencies.NUMBER.fullmatch(head):
                head = int(head)
            if type(head) is not int or head < 0:
                raise self.wrong("heads", "numbers from 0 on", repr(head))
            found.append((word, head, label))
        return [x[0] for x in found], [x[1] for x in found], [x[2] for x in found]

    def image(self) -> Path:
        value = self.values.get("path")
        if isinstance(value, Mapping):
            value = value.get("path")
        value = getattr(value, "filename", value)
        if not isinstance(value, str | PathLike) or not str(value):
            raise self.wrong(
                "path", "the path of an image", f"{type(value).__name__}. Save it first"
            )
        return Path(value)


def _feature(features: Any, key: str) -> Any:
    """Return the description of a column of ``datasets``."""
    try:
        return features[key]
    except (KeyError, TypeError):
        return None


def _inner(feature: Any, key: str) -> Any:
    """Return the description of a column of ``objects``."""
    return _feature(getattr(feature, "feature", feature), key)


def _names(feature: Any) -> Sequence[str] | None:
    return getattr(getattr(feature, "feature", feature), "names", None)
