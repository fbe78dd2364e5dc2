"""Annotated data: examples, their readers, and texts with character spans as tags.

Reading of images needs Pillow: ``pip install "smoothsp[localiser]"``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from smoothsp.data import dependencies, trees, unseen_labels
from smoothsp.data.conversion import as_dependencies, as_images, as_tagged, as_trees
from smoothsp.data.dependencies import read_dependencies
from smoothsp.data.examples import (
    AnnotatedImage,
    ConstituencyTree,
    DependencyTree,
    TaggedSentence,
)
from smoothsp.data.offsets import AnnotatedText, Unaligned, read_spans, tag_words
from smoothsp.data.splits import SplitFiles
from smoothsp.data.tagged_files import Splits, by_document, read_splits, read_tagged
from smoothsp.data.trees import read_trees

if TYPE_CHECKING:
    from smoothsp.data.boxes import read_box_splits, read_boxes
    from smoothsp.data.masks import MaskedImage, as_masks, read_masks

__all__ = [
    "AnnotatedImage",
    "AnnotatedText",
    "ConstituencyTree",
    "DependencyTree",
    "MaskedImage",
    "SplitFiles",
    "Splits",
    "TaggedSentence",
    "Unaligned",
    "as_dependencies",
    "as_images",
    "as_masks",
    "as_tagged",
    "as_trees",
    "by_document",
    "dependencies",
    "read_box_splits",
    "read_boxes",
    "read_dependencies",
    "read_masks",
    "read_spans",
    "read_splits",
    "read_tagged",
    "read_trees",
    "tag_words",
    "trees",
    "unseen_labels",
]


# Module of each name that needs Pillow: it is imported on first access, so that
# readers of text work without Pillow.
LAZY_MODULES = dict.fromkeys(("read_box_splits", "read_boxes"), "boxes")
LAZY_MODULES |= dict.fromkeys(("MaskedImage", "as_masks", "read_masks"), "masks")


def __getattr__(name: str) -> Any:
    if name not in LAZY_MODULES:
        raise AttributeError(f"module 'smoothsp.data' has no attribute {name!r}")
    try:
        module = import_module(f"smoothsp.data.{LAZY_MODULES[name]}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'smoothsp.data: needs {error.name}: pip install "smoothsp[localiser]"',
            name=error.name,
        ) from error
    return getattr(module, name)
