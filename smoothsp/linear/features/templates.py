"""Templates: sparse indicator features of the tokens of sentences."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone

from smoothsp._kernels.linear import feature_rows as kernel
from smoothsp.linear.features import whole_files
from smoothsp.linear.features._feature_index import FeatureIndex
from smoothsp.linear.features._template_parser import (
    FUNCTIONS,
    Source,
    Template,
    parse_template,
    template_to_text,
)
from smoothsp.linear.features._token_columns import (
    EncodedTokens,
    apply_functions,
    stable_hash,
)

_FORMAT = "smoothsp templates 1"
# Number of columns with ``hash_with_label``: the problem hashes them again.
_NUM_HASHED_COLUMNS = 2**31 - 1


class Words(sparse.csr_array):  # type: ignore[misc]
    """Sparse features of words, one row each, with the lengths of sentences.

    Attributes
    ----------
    lengths : ndarray or None
        Number of words of each sentence, set by ``Templates.transform``; None for
        matrices computed from another one.
    hash_with_label : int or None
        Number of weights if features are hashed together with labels; set by
        ``Templates.transform``.
    dictionary : object or None
        Object with the ``names()`` of the columns; None with hashing.

    Examples
    --------
    >>> from smoothsp.linear.features import Templates
    >>> words = Templates(["word", "bias"]).fit_transform([["Ada", "met"], ["Bo"]])
    >>> words.shape, words.lengths.tolist()
    ((3, 4), [2, 1])
    """

    lengths: NDArray[np.int64] | None = None
    hash_with_label: int | None = None
    dictionary: FeatureIndex | None = None


class Templates(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sparse indicator features of tokens, described by templates.

    ``"word[-1]=the"`` is one feature: it is 1 at the positions whose left neighbour is
    ``the``. A template describes a family of features: it names a column and an offset,
    and ``&`` joins several pieces:

    ==============================  ====================================================
    ``word``                        the string in column ``word`` at the position itself
    ``word[-2..2]``                 five templates, of the word and of two on each side
    ``lower(word)[-1]``             in small letters
    ``shape(word)``                 capitals as X, other letters as x, digits as d
    ``short_shape(word)``           the shape with runs of a character reduced to one
    ``prefix(word, 1..4)``          four templates; a shorter word has no such feature
    ``suffix(lower(word), 3)``      functions nest
    ``pos[-1] & pos & word[0..1]``  two templates of three pieces each
    ``bias``                        1 everywhere
    ==============================  ====================================================

    Pieces beyond the ends of the sentence have a separate value.

    Parameters
    ----------
    templates
        Strings as above.
    columns
        Names of the strings of a token, in order.
    hashing
        None: ``fit`` numbers the features it finds, and others are dropped. A number
        from 1 to 2^31 - 1: that many hashed columns; ``fit`` learns nothing, and
        colliding features add up. Hashes are equal on all machines.
    min_count
        Minimum number of positions of a feature; rarer ones are dropped. Only without
        hashing.
    hash_with_label
        A number from 1 to 2^31 - 1, instead of ``hashing``: features and labels are
        hashed together, into this number of weights, by
        :class:`~smoothsp.linear.problems.HashedChainProblem`, which accepts the matrix
        unchanged. Its columns are hashes of the features, 2^31 - 1 in number.
    dtype
        Dtype of the values, float64 or float32.

    Attributes
    ----------
    num_features : int
        Number of columns of the matrices of ``transform``.

    Raises
    ------
    ValueError
        If a template cannot be parsed or occurs twice.

    Notes
    -----
    A scikit-learn transformer of sequences of sentences: the first step of a
    ``Pipeline`` whose last is a tagger.

    Strings are taken apart once for each distinct one. Time and memory beyond that are
    O(positions times templates).

    Source: hashed window features as in Pillutla et al., "A Smoother Way to Train
    Structured Prediction Models", section 7.1.1.

    Examples
    --------
    >>> templates = Templates(["word[-1..0]", "suffix(word, 2)"])
    >>> templates.fit_transform([["the", "cat"], ["a", "cat"]]).toarray()
    array([[0., 0., 1., 1., 0., 0., 1., 0.],
           [1., 0., 0., 0., 1., 0., 0., 1.],
           [0., 0., 1., 0., 0., 1., 0., 0.],
           [0., 1., 0., 0., 1., 0., 0., 1.]])
    >>> templates.names()[:3]
    ['word[-1]=the', 'word[-1]=a', 'word[-1]']
    """

    def __init__(
        self,
        templates: Iterable[str],
        columns: Sequence[str] = ("word",),
        *,
        hashing: int | None = None,
        min_count: int = 1,
        dtype: DTypeLike = np.float64,
        hash_with_label: int | None = None,
    ) -> None:
        # stored unchanged, since clone of scikit-learn compares identities
        self.templates = _check_strings("templates", templates)
        self.columns = _check_strings("columns", columns)
        self.hashing = hashing
        self.min_count = min_count
        self.dtype = dtype
        self.hash_with_label = hash_with_label
        self._feature_index: FeatureIndex | None = None
        self._parse_templates()

    def set_params(self, **params: Any) -> "Templates":
        """Set parameters and discard the fitted features."""
        updated = clone(self)
        BaseEstimator.set_params(updated, **params)
        updated._feature_index = None
        updated._parse_templates()
        self.__dict__.update(updated.__dict__)
        return self

    def _parse_templates(self) -> None:
        self._check_params()
        columns = tuple(self.columns)
        self._parsed = [
            t for text in self.templates for t in parse_template(text, columns)
        ]
        for n, template in enumerate(self._parsed):
            if template in self._parsed[:n]:
                raise ValueError(
                    "templates: expected each once, got"
                    f" {template_to_text(template)} twice"
                )

    def _check_params(self) -> None:
        if not len(self.templates):
            raise ValueError("templates: expected at least one, got none")
        for name in self.columns:
            if not name.isidentifier() or name == "bias" or name in FUNCTIONS:
                raise ValueError(
                    "columns: expected names of letters, digits and _ other than"
                    f" {', '.join(FUNCTIONS)} and bias, got {name!r}"
                )
        if len(set(self.columns)) < len(self.columns) or not len(self.columns):
            raise ValueError(
                f"columns: expected one or more different names, got {self.columns}"
            )
        for name in ("hashing", "hash_with_label"):
            size = getattr(self, name)
            if size is not None and not 1 <= _check_int(name, size) < 2**31:
                raise ValueError(
                    f"{name}: expected a number from 1 to 2^31 - 1, got {size}"
                )
        if self.hashing is not None and self.hash_with_label is not None:
            raise ValueError(
                f"hash_with_label: expected None with hashing, got"
                f" {self.hash_with_label}; features are hashed once"
            )
        if _check_int("min_count", self.min_count) < 1:
            raise ValueError(f"min_count: expected at least 1, got {self.min_count}")
        if self._num_hashed_columns is not None and self.min_count > 1:
            raise ValueError(
                f"min_count: expected 1 with hashing, which counts nothing, got"
                f" {self.min_count}"
            )
        if np.dtype(self.dtype) not in (np.float64, np.float32):
            raise ValueError(
                f"dtype: expected float64 or float32, got {np.dtype(self.dtype)}"
            )

    @property
    def _num_hashed_columns(self) -> int | None:
        """Number of hashed columns; None without hashing."""
        return self.hashing if self.hash_with_label is None else _NUM_HASHED_COLUMNS

    @property
    def num_features(self) -> int:
        """Number of columns of the matrices of ``transform``."""
        if self._num_hashed_columns is not None:
            return self._num_hashed_columns
        return sum(self._require_index().num_features_by_template)

    def fit(self, sentences: Iterable[Sequence[Any]], y: Any = None) -> "Templates":
        """Number the features of ``sentences``; ``y`` is ignored.

        ``sentences`` may come from an iterator, here and in ``transform``: some of them
        are in memory at a time.
        """
        if self._num_hashed_columns is None:
            self._fit_index(self._encode_tokens(sentences))
        return self

    def fit_transform(self, sentences: Iterable[Sequence[Any]], y: Any = None) -> Words:
        """Fit and transform in one pass over the sentences."""
        if self._num_hashed_columns is not None:
            return self.transform(sentences)
        tokens = self._encode_tokens(sentences)
        return self._build_matrix(self._fit_index(tokens), tokens)

    def transform(self, sentences: Iterable[Sequence[Any]]) -> Words:
        """Return the features of each token, sentence after sentence.

        Parameters
        ----------
        sentences
            Sequences of tokens, or an iterator of such. A token has one string a
            column; with a single column it may be the string itself.

        Returns
        -------
        Words
            A ``scipy.sparse.csr_array`` of ``(tokens of all sentences, num_features)``
            with ascending int32 indices. Its attribute ``lengths`` has the lengths of
            the sentences, so that you can pass it to a tagger.

        Raises
        ------
        ValueError
            If a token has more or fewer strings than columns.
        TypeError
            If it has something other than strings.
        """
        tokens = self._encode_tokens(sentences)
        if self._num_hashed_columns is not None:
            columns = compute_hashed_columns(
                self._parsed, tokens, self._num_hashed_columns
            )
        else:
            columns = self._require_index().transform(tokens)
        return self._build_matrix(columns, tokens)

    def _encode_tokens(self, sentences: Iterable[Sequence[Any]]) -> EncodedTokens:
        return EncodedTokens(sentences, tuple(self.columns))

    def names(self) -> list[str]:
        """Return the name of each feature; raises with hashing, which has no names."""
        if self._num_hashed_columns is not None:
            raise ValueError("names: expected templates without hashing")
        return self._require_index().names()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of ``transform``; not with hashing.

        Parameters
        ----------
        input_features
            Ignored.

        Returns
        -------
        ndarray
            ``(num_features,)`` of strings, dtype object.
        """
        return np.array(self.names(), dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted templates to a JSON file atomically."""
        content = {
            "format": _FORMAT,
            "templates": list(self.templates),
            "columns": list(self.columns),
            "hashing": self.hashing,
            "hash_with_label": self.hash_with_label,
            "min_count": self.min_count,
            "dtype": np.dtype(self.dtype).name,
            "dictionary": self._feature_index.state() if self._feature_index else None,
        }
        whole_files.write(path, json.dumps(content).encode("utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Templates":
        """Load templates from a file of ``save``.

        Raises
        ------
        ValueError
            If the file has another format, is damaged or inconsistent.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: expected JSON, got {error}") from error
        file_format = content.get("format") if isinstance(content, dict) else None
        if file_format != _FORMAT:
            raise ValueError(
                f"{path}: expected a file with format {_FORMAT!r}, got {file_format!r}"
            )
        names = ("templates", "columns", "hashing", "min_count", "dtype")
        missing = [name for name in (*names, "dictionary") if name not in content]
        if missing:
            raise ValueError(
                f"{path}: expected a file that Templates.save wrote, got one without"
                f" {', '.join(missing)}"
            )
        options = {name: content[name] for name in names}
        # older files lack this option
        options["hash_with_label"] = content.get("hash_with_label")
        try:
            templates = cls(options.pop("templates"), **options)
            if content["dictionary"] is not None:
                templates._feature_index = FeatureIndex(templates._parsed)
                templates._feature_index.set_state(content["dictionary"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}: expected parts that fit together, as Templates.save writes"
                f" them, got {error}"
            ) from error
        return templates

    def _fit_index(self, tokens: EncodedTokens) -> NDArray[np.int32]:
        if len(tokens.offsets) == 1:
            raise ValueError("sentences: expected at least one to fit, got none")
        dictionary = FeatureIndex(self._parsed)
        columns = dictionary.fit(tokens, self.min_count)
        self._feature_index = dictionary
        return columns

    def _require_index(self) -> FeatureIndex:
        if self._feature_index is None:
            raise ValueError("Templates: expected a fitted object; call fit first")
        return self._feature_index

    def _build_matrix(self, columns: NDArray[np.int32], tokens: EncodedTokens) -> Words:
        indptr = np.empty(len(columns) + 1, dtype=np.int64)
        indices = np.empty(columns.size, dtype=np.int32)
        values = np.empty(columns.size, dtype=np.dtype(self.dtype))
        # entries of a row must ascend: the kernel sorts the columns of a position
        kernel.build_rows(columns, indptr, indices, values)
        used = int(indptr[-1])
        # scipy requires indptr and indices of one dtype
        if used <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        if used < columns.size:
            indices, values = indices[:used].copy(), values[:used].copy()
        shape = (len(columns), self.num_features)
        matrix = Words((values, indices, indptr), shape=shape)
        matrix.has_canonical_format = True
        matrix.lengths = np.diff(tokens.offsets)
        matrix.hash_with_label = self.hash_with_label
        matrix.dictionary = (
            None if self._num_hashed_columns is not None else self._require_index()
        )
        return matrix


def _check_strings(name: str, strings: Iterable[str]) -> Sequence[str]:
    """Return a sequence of strings; an iterator as a tuple. Raise for other types."""
    if isinstance(strings, str):
        raise TypeError(f"{name}: expected several strings, got one, {strings!r}")
    texts = strings if isinstance(strings, list | tuple) else tuple(strings)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name}: expected strings, got {texts!r}")
    return texts


def _check_int(name: str, value: object) -> int:
    """Return ``value`` as an int; raise TypeError unless it is one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an int, got {value!r}")
    return int(value)


def compute_hashed_columns(
    templates: Sequence[Template], tokens: EncodedTokens, size: int
) -> NDArray[np.int32]:
    """Return hashes ``[position, template]`` in [0, size); -1 for no feature.

    The hash of the template's text is mixed with the hashes of the values, piece by
    piece, and depends on nothing else.
    """
    positions = int(tokens.offsets[-1])
    sources = {piece.source: None for template in templates for piece in template}
    codes: dict[Source, NDArray[np.int32]] = {}
    hashes: dict[Source, NDArray[np.uint64]] = {}
    for source in sources:
        values = apply_functions(source, tokens.strings[source.column])
        table = {
            value: code
            for code, value in enumerate(dict.fromkeys(values))
            if value is not None
        }
        table = {value: code for code, value in enumerate(table)}
        codes_of_strings = [-1 if value is None else table[value] for value in values]
        codes[source] = np.array(codes_of_strings, np.int32)[
            tokens.codes[source.column]
        ]
        value_hashes = [stable_hash(value) for value in table]
        hashes[source] = np.array([*value_hashes, kernel.OUTSIDE_HASH], dtype=np.uint64)
    columns = np.empty((positions, len(templates)), dtype=np.int32)
    neighbour_codes = np.empty(positions, dtype=np.int32)
    for template_index, template in enumerate(templates):
        feature_hashes = np.full(
            positions, stable_hash(template_to_text(template)), dtype=np.uint64
        )
        is_active = np.ones(positions, dtype=np.bool_)
        for piece in template:
            outside = len(hashes[piece.source]) - 1
            kernel.shift_codes(
                codes[piece.source],
                tokens.offsets,
                piece.offset,
                outside,
                neighbour_codes,
            )
            kernel.hash_codes(
                neighbour_codes, hashes[piece.source], feature_hashes, is_active
            )
        hashed = (feature_hashes % np.uint64(size)).astype(np.int32)
        columns[:, template_index] = np.where(is_active, hashed, -1)
    return columns
