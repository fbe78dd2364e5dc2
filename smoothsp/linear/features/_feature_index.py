"""Index from the values of templates to columns, fitted on sentences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import feature_rows as kernel
from smoothsp.linear.features._template_parser import Source, Template
from smoothsp.linear.features._token_columns import EncodedTokens, apply_functions


class FeatureIndex:
    """Features of templates, numbered template after template.

    The distinct strings of a source have the codes 0 to V - 1; V stands for positions
    outside of the sentence. Level 0 of a template is the sorted codes of its first
    piece. Level j is the sorted keys ``rank in level j - 1 * (V + 1) + code of piece
    j`` that occur. Ranks in the last level are the features of the template.

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
    def num_features_by_template(self) -> list[int]:
        """Number of features of each template."""
        return [
            len(levels[-1]) if levels else 1  # the bias
            for levels in self.levels
        ]

    def fit(self, tokens: EncodedTokens, min_count: int) -> NDArray[np.int32]:
        """Number features of at least ``min_count`` positions; return ``columns``."""
        self.values, self.levels = {}, []
        tables: dict[Source, dict[str, int]] = {}
        for piece in (piece for template in self.templates for piece in template):
            if piece.source not in tables:
                values = apply_functions(
                    piece.source, tokens.strings[piece.source.column]
                )
                # codes in order of first occurrence: dicts keep it
                distinct = dict.fromkeys(v for v in values if v is not None)
                tables[piece.source] = {
                    value: code for code, value in enumerate(distinct)
                }
        self.values = {source: list(table) for source, table in tables.items()}
        return self._number_features(tokens, min_count)

    def transform(self, tokens: EncodedTokens) -> NDArray[np.int32]:
        """Return features ``[position, template]``; -1 where a template has none."""
        return self._number_features(tokens, None)

    def _number_features(
        self, tokens: EncodedTokens, min_count: int | None
    ) -> NDArray[np.int32]:
        codes = self._encode_sources(tokens)
        positions = int(tokens.offsets[-1])
        columns = np.empty((positions, len(self.templates)), dtype=np.int32)
        neighbour_codes = np.empty(positions, dtype=np.int32)
        first_column = 0
        for template_index, template in enumerate(self.templates):
            keys = np.zeros(positions, dtype=np.int64)
            if min_count is not None:
                self.levels.append([])
            for level, piece in enumerate(template):
                size = len(self.values[piece.source])
                kernel.shift_codes(
                    codes[piece.source],
                    tokens.offsets,
                    piece.offset,
                    size,
                    neighbour_codes,
                )
                kernel.join_codes(neighbour_codes, size + 1, keys)
                if min_count is not None:
                    # prefixes of a feature occur at least as often as the feature
                    required_count = min_count if level == len(template) - 1 else 1
                    self.levels[template_index].append(
                        _frequent_keys(keys, size + 1, level == 0, required_count)
                    )
                _replace_by_rank(
                    self.levels[template_index][level], size + 1, level == 0, keys
                )
            columns[:, template_index] = np.where(keys < 0, -1, keys + first_column)
            first_column += self.num_features_by_template[template_index]
        return columns

    def _encode_sources(self, tokens: EncodedTokens) -> dict[Source, NDArray[np.int32]]:
        codes = {}
        for source, values in self.values.items():
            table = {value: code for code, value in enumerate(values)}
            derived = apply_functions(source, tokens.strings[source.column])
            # unknown strings have code -1, and with them the feature is absent
            code_of_string = [-1 if v is None else table.get(v, -1) for v in derived]
            code_table = np.array(code_of_string, dtype=np.int32)
            codes[source] = code_table[tokens.codes[source.column]]
        return codes

    def names(self) -> list[str]:
        """Names of the features, such as ``word[-1]=the & pos[0]=NN``."""
        names = []
        for template, levels in zip(self.templates, self.levels, strict=True):
            if not template:
                names.append("bias")
            if not levels:
                continue
            prefixes = [""]
            for j, (piece, keys) in enumerate(zip(template, levels, strict=True)):
                values = [f"={_escape_value(v)}" for v in self.values[piece.source]]
                values.append("")
                num_codes = len(values)
                separator = " & " if j else ""
                prefixes = [
                    f"{prefixes[key // num_codes]}{separator}"
                    f"{piece}{values[key % num_codes]}"
                    for key in keys.tolist()
                ]
            names += prefixes
        return names

    def state(self) -> dict[str, Any]:
        """Return the fitted values and levels as lists and strings, for JSON."""
        return {
            "values": list(self.values.values()),
            "levels": [
                [keys.tolist() for keys in template_levels]
                for template_levels in self.levels
            ],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Load a ``state``; raise TypeError or ValueError if it is invalid."""
        order = [p.source for template in self.templates for p in template]
        self.values = dict(zip(dict.fromkeys(order), state["values"], strict=True))
        for source, values in self.values.items():
            if not all(isinstance(value, str) for value in values):
                raise TypeError(f"values of {source} that are not strings")
            if len(set(values)) < len(values):
                raise ValueError(f"values of {source} that are not distinct")
        self.levels = []
        for template, saved_levels in zip(self.templates, state["levels"], strict=True):
            self.levels.append([])
            previous_size = 1
            for piece, saved_keys in zip(template, saved_levels, strict=True):
                keys = np.array(saved_keys, dtype=np.int64)
                num_pairs = previous_size * (len(self.values[piece.source]) + 1)
                in_range = (keys >= 0) & (keys < num_pairs)
                if not (in_range.all() and (np.diff(keys) > 0).all()):
                    raise ValueError(f"keys of {piece} out of range or not ascending")
                self.levels[-1].append(keys)
                previous_size = len(keys)


def _escape_value(value: str) -> str:
    """Escape backslashes and ``&``, which separates pieces in names."""
    return value.replace("\\", "\\\\").replace("&", "\\&")


def _frequent_keys(
    keys: NDArray[np.int64], num_keys: int, is_first_level: bool, min_count: int
) -> NDArray[np.int64]:
    """Return the sorted keys that occur at least ``min_count`` times; -1 is none."""
    if is_first_level:
        counts = np.bincount(keys + 1, minlength=num_keys + 1)[1:]
        return np.flatnonzero(counts >= max(min_count, 1))
    distinct, counts = np.unique(keys, return_counts=True)
    return np.asarray(distinct[(counts >= min_count) & (distinct >= 0)])


def _replace_by_rank(
    sorted_keys: NDArray[np.int64],
    num_keys: int,
    is_first_level: bool,
    keys: NDArray[np.int64],
) -> None:
    """Replace keys in place by their rank in ``sorted_keys``, or by -1."""
    if not is_first_level:
        kernel.vocabulary_indices(sorted_keys, keys)
        return
    # key -1 reads the last entry, which stays -1
    rank = np.full(num_keys + 1, -1, dtype=np.int64)
    rank[sorted_keys] = np.arange(len(sorted_keys))
    keys[:] = rank[keys]
