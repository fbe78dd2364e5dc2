"""Trained models as folders: load one and use it.

Needs safetensors: ``pip install "smoothsp[models]"``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothsp.models.constituency_parser import ConstituencyParser
    from smoothsp.models.constituents import Constituents
    from smoothsp.models.loading import load
    from smoothsp.models.parsed_sentence import Parsed
    from smoothsp.models.parser import Parser
    from smoothsp.models.segmenter import Segmenter
    from smoothsp.models.tagged_sentence import Span, Tagged
    from smoothsp.models.tagger import Tagger

__all__ = [
    "ConstituencyParser",
    "Constituents",
    "Parsed",
    "Parser",
    "Segmenter",
    "Span",
    "Tagged",
    "Tagger",
    "load",
]

# Modules are imported at first use: options of models can be read without PyTorch.
_MODULES = {
    "ConstituencyParser": "smoothsp.models.constituency_parser",
    "Constituents": "smoothsp.models.constituents",
    "load": "smoothsp.models.loading",
    "Parsed": "smoothsp.models.parsed_sentence",
    "Parser": "smoothsp.models.parser",
    "Segmenter": "smoothsp.models.segmenter",
    "Span": "smoothsp.models.tagged_sentence",
    "Tagged": "smoothsp.models.tagged_sentence",
    "Tagger": "smoothsp.models.tagger",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'smoothsp.models' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "safetensors":
            raise
        raise ModuleNotFoundError(
            'smoothsp.models: needs safetensors: pip install "smoothsp[models]"',
            name=error.name,
        ) from error
