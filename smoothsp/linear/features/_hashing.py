"""Features that need no dictionary: the hash of a feature is its number."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import feature_rows as kernel
from smoothsp.linear.features._grammar import Source, Template, shown
from smoothsp.linear.features._strings import Tokens, derived, digest


def hashed_columns(
    templates: Sequence[Template], tokens: Tokens, size: int
) -> NDArray[np.int32]:
    """Features ``[position, template]`` in [0, size); -1 where a template has none.

    The hash starts from that of the template's text and takes in those of the values,
    piece by piece. It depends on nothing else.
    """
    positions = int(tokens.offsets[-1])
    sources = {piece.source: None for template in templates for piece in template}
    codes: dict[Source, NDArray[np.int32]] = {}
    hashes: dict[Source, NDArray[np.uint64]] = {}
    for source in sources:
        values = derived(source, tokens.strings[source.column])
        table = {v: n for n, v in enumerate(dict.fromkeys(values)) if v is not None}
        table = {value: n for n, value in enumerate(table)}
        lookup = [-1 if v is None else table[v] for v in values]
        codes[source] = np.array(lookup, np.int32)[tokens.codes[source.column]]
        known = [digest(value) for value in table]
        hashes[source] = np.array([*known, kernel.OUTSIDE], dtype=np.uint64)
    found = np.empty((positions, len(templates)), dtype=np.int32)
    here = np.empty(positions, dtype=np.int32)
    for t, template in enumerate(templates):
        running = np.full(positions, digest(shown(template)), dtype=np.uint64)
        fires = np.ones(positions, dtype=np.bool_)
        for piece in template:
            outside = len(hashes[piece.source]) - 1
            kernel.neighbours(
                codes[piece.source], tokens.offsets, piece.offset, outside, here
            )
            kernel.mixed(here, hashes[piece.source], running, fires)
        numbers = (running % np.uint64(size)).astype(np.int32)
        found[:, t] = np.where(fires, numbers, -1)
    return found
