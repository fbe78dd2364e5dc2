"""Weights of a tagger by the names of features and labels."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from smoothsp.linear.inputs import checks


class Weight(NamedTuple):
    """Row of a table of weights."""

    label: str
    """Label; of a transition, the second label."""
    feature: str
    """Name or column of the feature; of a transition, the first label."""
    kind: str
    """``"feature"`` or ``"transition"``."""
    weight: float


class WeightTable(list[Weight]):
    """List of ``Weight`` that prints as a table."""

    def __str__(self) -> str:
        header = Weight("label", "feature", "kind", 0.0)
        widths = [max(len(row[field]) for row in (header, *self)) for field in range(2)]
        lines = [f"{'weight':>9}  {'label':<{widths[0]}}  feature"]
        for row in self:
            arrow = "after " if row.kind == "transition" else ""
            lines.append(
                f"{row.weight:9.4f}  {row.label:<{widths[0]}}  {arrow}{row.feature}"
            )
        return "\n".join(lines)


class NamedWeights:
    """Weights of a fitted tagger, by names of features and labels."""

    classes_: NDArray[Any]
    coef_: NDArray[np.float64]
    transitions_: NDArray[np.float64]
    feature_names_: list[str] | None
    # index with the names of columns, if X came from Templates
    _feature_index: Any = None

    @property
    def state_features_(self) -> dict[tuple[Any, Any], float]:
        """Weights that are not 0, by ``(feature, label)``.

        A feature goes by its name, or by its column where it has none.
        """
        check_is_fitted(self)
        classes = self.classes_.tolist()
        rows, columns = np.nonzero(self.coef_)
        names = self._feature_names()
        values = self.coef_[rows, columns].tolist()
        return {
            (names[column], classes[row]): value
            for row, column, value in zip(
                rows.tolist(), columns.tolist(), values, strict=True
            )
        }

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """Weights of transitions, by ``(first label, second label)``."""
        check_is_fitted(self)
        classes = self.classes_.tolist()
        return {
            (first, second): value
            for first, row in zip(classes, self.transitions_.tolist(), strict=True)
            for second, value in zip(classes, row, strict=True)
        }

    def top_features(self, k: int = 10, names: Any = None) -> WeightTable:
        """The k largest weights of features, and of transitions into, each label.

        Largest in size, the most positive first; zeros are left out. A list of
        ``(label, feature, kind, weight)``, which ``print`` shows as a table.

        Parameters
        ----------
        k
            Of each label.
        names
            ``(features,)``: names of the columns, such as ``get_feature_names_out()``
            of a transformer. None: names known from the fit, of named features or of
            the output of :class:`~smoothsp.linear.features.Templates`.

        Examples
        --------
        >>> from smoothsp.linear import ChainCRF
        >>> X = [[{"word": "a"}, {"caps": True}]]
        >>> tagger = ChainCRF(C=10).fit(X, [["O", "PER"]])
        >>> [row.feature for row in tagger.top_features(3) if row.label == "PER"]
        ['caps', 'word=a', 'O', 'PER']
        """
        check_is_fitted(self)
        checks.as_positive_int("k", k)
        feature_names = self._feature_names() if names is None else list(names)
        if len(feature_names) != self.coef_.shape[1]:
            raise ValueError(
                f"names: expected one for each of the {self.coef_.shape[1]} features,"
                f" got {len(feature_names)}"
            )
        classes = [str(label) for label in self.classes_.tolist()]
        table = WeightTable()
        for class_index, label in enumerate(classes):
            kinds = (
                ("feature", feature_names, self.coef_[class_index]),
                ("transition", classes, self.transitions_[:, class_index]),
            )
            for kind, source_names, weights in kinds:
                order = np.argsort(-np.abs(weights), kind="stable")[:k].tolist()
                lines = [
                    Weight(label, str(source_names[index]), kind, float(weights[index]))
                    for index in order
                    if weights[index] != 0
                ]
                table += sorted(lines, key=lambda line: -line.weight)
        return table

    def _feature_names(self) -> list[Any]:
        if self.feature_names_ is not None:
            return self.feature_names_
        if self._feature_index is not None:
            names: list[Any] = self._feature_index.names()
            return names
        return list(range(self.coef_.shape[1]))
