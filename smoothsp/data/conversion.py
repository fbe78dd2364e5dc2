"""Conversion of user data to examples: paths, dataclasses, tuples, dictionaries."""

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

TOKEN_KEYS = (*WORD_KEYS, "form")
HEAD_KEYS, RELATION_KEYS = ("heads", "head"), ("labels", "deprel", "deprels", "rels")
IMAGE_KEYS, OBJECTS_KEY = ("path", "image", "image_path"), "objects"
CATEGORY_KEYS = ("category", "categories", "label", "labels")
# Heads of multi-word tokens in Hugging Face data sets.
MISSING_HEADS = (None, "None", "_")


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
        Name of the examples in error messages.

    Raises
    ------
    TypeError, ValueError
        With the index of the example, from 0, and the field.

    Examples
    --------
    >>> as_tagged([(["Orla", "left"], ["B-PER", "O"])])
    [TaggedSentence(words=['Orla', 'left'], tags=['B-PER', 'O'], document=0)]
    """
    if isinstance(data, str | PathLike):
        return read_tagged(Path(data), column=column)
    keys: dict[str, Sequence[Any]]
    keys = {
        "words": TOKEN_KEYS,
        "tags": (column,) if column else TAG_KEYS,
        "document": (),
    }
    sentences = []
    for number, example in enumerate(_require_examples(data, name)):
        fields = _ExampleFields(data, name, number, example, TaggedSentence, keys)
        words = fields.require_tokens()
        tags = fields.require_strings("tags", words, allow_none=True)
        if isinstance(example, TaggedSentence):
            sentences.append(example)
            continue
        document = fields.values.get("document", 0)
        if type(document) is not int:
            raise fields.make_error("document", "a number", document)
        sentences.append(TaggedSentence(words, tags, document))
    return sentences


def as_dependencies(data: Any, *, name: str = "data") -> list[DependencyTree]:
    """Return dependency trees.

    Parameters
    ----------
    data
        A path that ``read_dependencies`` reads; or ``DependencyTree``, tuples of words,
        heads and labels, or dictionaries with ``tokens`` or ``words``, ``head`` or
        ``heads``, and ``deprel`` or ``labels``. Heads count from 1; 0 is the root.
    name
        Name of the examples in error messages.

    Raises
    ------
    TypeError, ValueError
        With the index of the example, from 0, and the field; also for heads that are
        no tree.

    Examples
    --------
    >>> (tree,) = as_dependencies([(["dogs", "sleep"], [2, 0], ["nsubj", "root"])])
    >>> tree.heads
    [2, 0]
    """
    if isinstance(data, str | PathLike):
        return dependencies.read_dependencies(Path(data))
    keys = {"words": TOKEN_KEYS, "heads": HEAD_KEYS, "labels": RELATION_KEYS}
    records = [
        _ExampleFields(data, name, number, example, DependencyTree, keys)
        for number, example in enumerate(_require_examples(data, name))
    ]
    rows = [(record, *record.parse_arcs()) for record in records]
    root = dependencies.infer_root_label(
        (head, label) for _, _, heads, labels in rows
        for head, label in zip(heads, labels, strict=True)
    )  # fmt: skip
    examples = []
    for record, words, heads, labels in rows:
        locations = [f"{record.where}, word {n}" for n in range(1, len(words) + 1)]
        labels = dependencies.check_tree(heads, labels, locations, root)
        examples.append(
            record.example
            if isinstance(record.example, DependencyTree)
            and record.example.labels == labels
            else dependencies.make_tree(words, heads, labels)
        )
    return examples


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
        Name of the examples in error messages.

    Raises
    ------
    TypeError, ValueError
        With the index of the example, from 0, and the field; also for crossing spans,
        unless the example is a ``ConstituencyTree``.

    Examples
    --------
    >>> as_trees(["(S (NN dogs) (VB sleep))"])[0].spans
    [('S', 0, 1)]
    """
    if isinstance(data, PathLike) or (isinstance(data, str) and "(" not in data):
        return trees.read_trees(Path(data))
    keys: dict[str, Sequence[str]]
    keys = {"words": TOKEN_KEYS, "spans": ("spans", "entities"), "tags": ("tags",)}
    examples = []
    for number, example in enumerate(
        _require_examples([data] if isinstance(data, str) else data, name)
    ):
        if hasattr(example, "pformat"):
            example = example.pformat()
        if isinstance(example, str):
            location = f"{name}[{number}]"
            if surrogate := find_lone_surrogate(example):
                raise ValueError(
                    f"{location}: expected text, got {_describe_surrogate(surrogate)}"
                )
            examples += trees.parse(example.encode(), location)
            continue
        fields = _ExampleFields(data, name, number, example, ConstituencyTree, keys)
        words, spans = fields.require_tokens(), fields.require_list("spans")
        for span in spans:
            if not _is_span(span, len(words)):
                expected = f"a label and two words from 0 to {len(words) - 1}"
                raise fields.make_error("spans", expected, span)
        if isinstance(example, ConstituencyTree):
            examples.append(example)
            continue
        full_span = (0, len(words) - 1)
        ordered = sorted(((str(a), b, c) for a, b, c in spans), key=_outer_first_key)
        if crossing_spans := _find_crossing(ordered):
            raise fields.make_error(
                "spans", "spans of which none crosses another", crossing_spans
            )
        if not any(span[1:] == full_span for span in ordered):
            ordered.insert(0, (trees.TOP, *full_span))
        tags = list(fields.values.get("tags") or ())
        if tags and not (
            len(tags) == len(words) and all(isinstance(x, str) for x in tags)
        ):
            raise fields.make_error("tags", f"{len(words)} strings", tags)
        examples.append(ConstituencyTree(words, trees.join_unary_chains(ordered), tags))
    return examples


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
        Name of the examples in error messages.

    Returns
    -------
    list
        Images, with boxes clipped to the image.

    Raises
    ------
    TypeError, ValueError
        With the index of the example, from 0, and the field; also for boxes completely
        outside of their image.
    """
    from smoothsp.data import boxes

    if isinstance(data, str | PathLike):
        return boxes.read_boxes(Path(data), part=part, kind=kind)
    keys = {
        "path": IMAGE_KEYS,
        "boxes": ("boxes",),
        "labels": ("labels",),
        "difficult": (),
    }
    images = []
    for number, example in enumerate(_require_examples(data, name)):
        if isinstance(example, AnnotatedImage) and example.size:
            images.append(example)
            continue
        are_corners, features = True, getattr(data, "features", None)
        if isinstance(example, Mapping) and isinstance(
            example.get(OBJECTS_KEY), Mapping
        ):
            objects, are_corners = example[OBJECTS_KEY], False
            category = next(
                (x for x in CATEGORY_KEYS if x in objects), CATEGORY_KEYS[0]
            )
            example = {key: example[key] for key in IMAGE_KEYS if key in example}
            example |= {"boxes": objects.get("bbox"), "labels": objects.get(category)}
            features = {
                "labels": _find_nested_feature(
                    _find_feature(features, OBJECTS_KEY), category
                )
            }
        fields = _ExampleFields(
            data, name, number, example, AnnotatedImage, keys, features
        )
        path, raw_boxes = fields.require_image_path(), fields.require_list("boxes")
        labels = fields.require_strings("labels", raw_boxes, item_name="boxes")
        difficult = (
            fields.require_list("difficult") if fields.values.get("difficult") else []
        )
        for pair in difficult:
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and pair[0]):
                raise fields.make_error("difficult", "pairs of label and box", pair)
        images.append(
            boxes.make_annotated_image(
                path, raw_boxes, [str(label) for label in labels or ()], fields.where,
                corners=are_corners, difficult=difficult,
            )
        )  # fmt: skip
    return images


def _require_examples(data: Any, name: str) -> list[Any]:
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
    examples = list(data)
    if not examples:
        raise ValueError(f"{name}: expected at least one example, got none")
    return examples


def _is_span(span: Any, num_words: int) -> bool:
    try:
        label, first, last = span
    except (TypeError, ValueError):
        return False
    are_indices = type(first) is int and type(last) is int
    is_named = isinstance(label, str) and bool(label) and not find_lone_surrogate(label)
    return is_named and are_indices and 0 <= first <= last < num_words


def _describe_surrogate(surrogate: str) -> str:
    return f"half of a surrogate pair, {surrogate!r}"


def _find_crossing(spans: Iterable[tuple[str, int, int]]) -> str | None:
    """Describe the first span that crosses an earlier one, or return None.

    Spans are sorted by start, longer ones first.
    """
    # A stack of the spans that contain the current position, outermost first.
    open_spans: list[tuple[str, int, int]] = []
    for span in spans:
        while open_spans and open_spans[-1][2] < span[1]:
            open_spans.pop()
        if open_spans and open_spans[-1][2] < span[2]:
            return f"{span} with {open_spans[-1]}"
        open_spans.append(span)
    return None


def _outer_first_key(span: tuple[str, int, int]) -> tuple[int, int]:
    return span[1], -span[2]


class _ExampleFields:
    """Fields of a user's example by name, with checked access."""

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
            key_by_field = {
                field: next((key for key in names if key in example), None)
                for field, names in keys.items()
            }
            for field, names in keys.items():
                if names and key_by_field[field] is None and field != "tags":
                    raise ValueError(
                        f"{self.where}: expected {' or '.join(names)}, got"
                        f" {', '.join(map(str, example))}"
                    )
            self.names = {field: key for field, key in key_by_field.items() if key}
            self.values = {field: example[key] for field, key in self.names.items()}
        elif isinstance(example, tuple | list) and 1 < len(example) <= len(keys):
            self.values = dict(zip(keys, example, strict=False))
        else:
            raise TypeError(
                f"{self.where}: expected a {kind.__name__}, a tuple of"
                f" {', '.join(keys)}, or a dictionary, got {type(example).__name__}"
            )

    def make_error(self, field: str, expected: str, value: Any) -> ValueError:
        name = self.names.get(field, field)
        return ValueError(
            f"{self.where}, {name}: expected {expected}, got {str(value)[:60]}"
        )

    def require_list(self, field: str) -> list[Any]:
        value: Any = self.values.get(field)
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise self.make_error(field, "a list", value)
        return list(value)

    def require_tokens(self) -> list[str]:
        words = self.require_list("words")
        for word in words:
            if not isinstance(word, str) or not word:
                raise self.make_error("words", "strings that are not empty", repr(word))
            self._require_text("words", word)
        if not words:
            raise self.make_error("words", "at least one word", "none")
        return words

    def require_strings(
        self,
        field: str,
        items: Sequence[Any],
        *,
        allow_none: bool = False,
        item_name: str = "words",
    ) -> list[Any] | None:
        """Return one string for each item; class indices become class names."""
        if allow_none and self.values.get(field) is None:
            if isinstance(self.example, Mapping) and field not in self.values:
                keys = ", ".join(map(str, self.example))
                raise self.make_error(field, "the key of the tags", keys)
            return None
        values = self.require_list(field)
        if len(values) != len(items):
            raise self.make_error(
                field, f"as many as {item_name}, {len(items)}", f"{len(values)}"
            )
        if any(type(x) is int for x in values):
            values = [self._class_name(field, x) for x in values]
        for value in values:
            if not (isinstance(value, str) and value) and not (
                allow_none and value is None
            ):
                raise self.make_error(field, "strings", repr(value))
            self._require_text(field, value or "")
        return values

    def _require_text(self, field: str, text: str) -> None:
        if surrogate := find_lone_surrogate(text):
            raise self.make_error(field, "text", _describe_surrogate(surrogate))

    def _class_name(self, field: str, index: Any) -> Any:
        names = _find_class_names(
            _find_feature(self.features, self.names.get(field, field))
        )
        if names is None:
            raise self.make_error(
                field,
                f"strings, or numbers that {self.name}.features names (ClassLabel)",
                f"{index}. Replace numbers by names",
            )
        if type(index) is not int or not 0 <= index < len(names):
            raise self.make_error(field, f"numbers from 0 to {len(names) - 1}", index)
        return names[index]

    def parse_arcs(self) -> tuple[list[str], list[int], list[str]]:
        """Return words, heads and labels, without multi-word tokens."""
        words, heads = self.require_tokens(), self.require_list("heads")
        labels = self.require_strings("labels", words) or []
        if len(heads) != len(words):
            raise self.make_error(
                "heads", f"as many as words, {len(words)}", len(heads)
            )
        rows = list(zip(words, heads, labels, strict=True))
        if isinstance(self.example, Mapping):
            rows = [row for row in rows if row[1] not in MISSING_HEADS]
        arcs = []
        for word, head, label in rows:
            if isinstance(head, str) and dependencies.NUMBER.fullmatch(head):
                head = int(head)
            if type(head) is not int or head < 0:
                raise self.make_error("heads", "numbers from 0 on", repr(head))
            arcs.append((word, head, label))
        return [x[0] for x in arcs], [x[1] for x in arcs], [x[2] for x in arcs]

    def require_image_path(self) -> Path:
        value = self.values.get("path")
        if isinstance(value, Mapping):
            value = value.get("path")
        value = getattr(value, "filename", value)
        if not isinstance(value, str | PathLike) or not str(value):
            raise self.make_error(
                "path", "the path of an image", f"{type(value).__name__}. Save it first"
            )
        return Path(value)


def _find_feature(features: Any, key: str) -> Any:
    """Return the feature of a column in ``datasets``, or None."""
    try:
        return features[key]
    except (KeyError, TypeError):
        return None


def _find_nested_feature(feature: Any, key: str) -> Any:
    """Return the feature of a column nested in ``objects``, or None."""
    return _find_feature(getattr(feature, "feature", feature), key)


def _find_class_names(feature: Any) -> Sequence[str] | None:
    return getattr(getattr(feature, "feature", feature), "names", None)
