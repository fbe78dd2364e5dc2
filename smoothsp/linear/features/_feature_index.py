"""Features that are numbered as they are met."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import feature_rows as kernel
from smoothsp.linear.features._template_parser import Source, Template
from smoothsp.linear.features._token_columns import EncodedTokens, apply_functions


class FeatureIndex:
    """The features of some templates that occur in some sentences.

    A source numbers its values 0 to V - 1, and V is the outside of a sentence. Level 0
    of a template lists the numbers that its first piece met, in order; level j lists
    the met pairs ``place in level j - 1 times (V + 1) plus number``. The last level is
    the features, counted on from those of the template before.

    Parameters
    ----------
    templates
        In the order in which their features are numbered.
    """

    def __init__(self, templates: Sequence[Template]) -> None:
        self.templates = templates
        self.values: dict[Source, list[str]] = {}
        self.levels: list[list[NDArray[np.int64]]] = []

    @property
    def sizes(self) -> list[int]:
        """Number of features of each template."""
        return [
            len(levels[-1]) if levels else 1  # the bias
            for levels in self.levels
        ]

    def fit(self, tokens: EncodedTokens, min_count: int) -> NDArray[np.int32]:
        """Number the features of at least ``min_count`` positions; where they are."""
        self.values, self.levels = {}, []
        tables: dict[Source, dict[str, int]] = {}
        for piece in (piece for template in self.templates for piece in template):
            if piece.source not in tables:
                found = apply_functions(
                    piece.source, tokens.strings[piece.source.column]
                )
                present = dict.fromkeys(v for v in found if v is not None)
                tables[piece.source] = {value: n for n, value in enumerate(present)}
        self.values = {source: list(table) for source, table in tables.items()}
        return self._columns(tokens, min_count)

    def columns(self, tokens: EncodedTokens) -> NDArray[np.int32]:
        """The features ``[position, template]``; -1 where a template has none."""
        return self._columns(tokens, None)

    def _columns(
        self, tokens: EncodedTokens, min_count: int | None
    ) -> NDArray[np.int32]:
        codes = self._codes(tokens)
        positions = int(tokens.offsets[-1])
        found = np.empty((positions, len(self.templates)), dtype=np.int32)
        here = np.empty(positions, dtype=np.int32)
        first = 0
        for t, template in enumerate(self.templates):
            running = np.zeros(positions, dtype=np.int64)
            if min_count is not None:
                self.levels.append([])
            for j, piece in enumerate(template):
                size = len(self.values[piece.source])
                kernel.shift_codes(
                    codes[piece.source], tokens.offsets, piece.offset, size, here
                )
                kernel.join_codes(here, size + 1, running)
                if min_count is not None:
                    least = min_count if j == len(template) - 1 else 1
                    self.levels[t].append(_met(running, size + 1, j == 0, least))
                _find(self.levels[t][j], size + 1, j == 0, running)
            found[:, t] = np.where(running < 0, -1, running + first)
            first += self.sizes[t]
        return found

    def _codes(self, tokens: EncodedTokens) -> dict[Source, NDArray[np.int32]]:
        codes = {}
        for source, values in self.values.items():
            table = {value: n for n, value in enumerate(values)}
            found = apply_functions(source, tokens.strings[source.column])
            of_string = [-1 if v is None else table.get(v, -1) for v in found]
            lookup = np.array(of_string, dtype=np.int32)
            codes[source] = lookup[tokens.codes[source.column]]
        return codes

    def names(self) -> list[str]:
        """Names of the features, such as ``word[-1]=the & pos[0]=NN``."""
        names = []
        for template, levels in zip(self.templates, self.levels, strict=True):
            if not template:
                names.append("bias")
            if not levels:
                continue
            texts = [""]
            for j, (piece, known) in enumerate(zip(template, levels, strict=True)):
                values = [f"={_escaped(v)}" for v in self.values[piece.source]]
                values.append("")
                size = len(values)
                link = " & " if j else ""
                texts = [
                    f"{texts[key // size]}{link}{piece}{values[key % size]}"
                    for key in known.tolist()
                ]
            names += texts
        return names

    def state(self) -> dict[str, Any]:
        """Everything that ``fit`` found, as lists and strings."""
        return {
            "values": list(self.values.values()),
            "levels": [[known.tolist() for known in of] for of in self.levels],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over the ``state`` of another; raise if it is not a valid state."""
        order = [p.source for template in self.templates for p in template]
        self.values = dict(zip(dict.fromkeys(order), state["values"], strict=True))
        for source, values in self.values.items():
            if not all(isinstance(value, str) for value in values):
                raise TypeError(f"values of {source} that are no strings")
            if len(set(values)) < len(values):
                raise ValueError(f"values of {source} that stand there twice")
        self.levels = []
        for template, of in zip(self.templates, state["levels"], strict=True):
            self.levels.append([])
            size = 1
            for piece, numbers in zip(template, of, strict=True):
                known = np.array(numbers, dtype=np.int64)
                pairs = size * (len(self.values[piece.source]) + 1)
                inside = (known >= 0) & (known < pairs)
                if not (inside.all() and (np.diff(known) > 0).all()):
                    raise ValueError(f"numbers of {piece} out of range or of order")
                self.levels[-1].append(known)
                size = len(known)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("&", "\\&")


def _met(
    running: NDArray[np.int64], size: int, first: bool, least: int
) -> NDArray[np.int64]:
    """The values that occur at least so often, in order; -1 is none."""
    if first:
        counts = np.bincount(running + 1, minlength=size + 1)[1:]
        return np.flatnonzero(counts >= max(least, 1))
    known, times = np.unique(running, return_counts=True)
    return np.asarray(known[(times >= least) & (known >= 0)])


def _find(
    known: NDArray[np.int64], size: int, first: bool, running: NDArray[np.int64]
) -> None:
    """Replace values by their places in ``known``, or by -1."""
    if not first:
        kernel.vocabulary_indices(known, running)
        return
    # the last entry is read where there is no value
    place = np.full(size + 1, -1, dtype=np.int64)
    place[known] = np.arange(len(known))
    running[:] = place[running]
