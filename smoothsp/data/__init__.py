"""Annotated data: examples, their readers, and texts with character spans as tags.

Reading of images needs Pillow: ``pip install "smoothsp[localiser]"``.
"""

from typing import TYPE_CHECKING, Any

from smoothsp.data import dependencies, trees, unseen_labels
from smoothsp.data.dependencies import read_dependencies
from smoothsp.data.examples import (
    AnnotatedImage,
    ConstituencyTree,
    DependencyTree,
    TaggedSentence,
)
from smoothsp.data.given import as_dependencies, as_images, as_tagged, as_trees
from smoothsp.data.offsets import AnnotatedText, Unaligned, read_spans, tag_words
from smoothsp.data.tagged import read_splits, read_tagged
from smoothsp.data.trees import read_trees

if TYPE_CHECKING:
    from smoothsp.data.boxes import read_box_splits, read_boxes

__all__ = [
    "AnnotatedImage",
    "AnnotatedText",
    "ConstituencyTree",
    "DependencyTree",
    "TaggedSentence",
    "Unaligned",
    "as_dependencies",
    "as_images",
    "as_tagged",
    "as_trees",
    "dependencies",
    "read_box_splits",
    "read_boxes",
    "read_dependencies",
    "read_spans",
    "read_splits",
    "read_tagged",
    "read_trees",
    "tag_words",
    "trees",
    "unseen_labels",
]


def __getattr__(name: str) -> Any:
    if name not in ("read_box_splits", "read_boxes"):
        raise AttributeError(f"module 'smoothsp.data' has no attribute {name!r}")
    try:
        from smoothsp.data import boxes
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'smoothsp.data: needs {error.name}: pip install "smoothsp[localiser]"',
            name=error.name,
        ) from error
    return getattr(boxes, name)
