"""Trained models as folders: load one and use it.

Needs safetensors: ``pip install "smoothsp[models]"``.
"""

try:
    from smoothsp.models.constituency_parser import ConstituencyParser
    from smoothsp.models.constituents import Constituents
    from smoothsp.models.loading import load
    from smoothsp.models.parsed_sentence import Parsed
    from smoothsp.models.parser import Parser
    from smoothsp.models.segmenter import Segmenter
    from smoothsp.models.tagged_sentence import Span, Tagged
    from smoothsp.models.tagger import Tagger
except ModuleNotFoundError as error:
    if error.name != "safetensors":
        raise
    raise ModuleNotFoundError(
        'smoothsp.models: needs safetensors: pip install "smoothsp[models]"',
        name=error.name,
    ) from error

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
