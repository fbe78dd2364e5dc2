"""What the classifiers of two classes share."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from smoothsp.linear.engines.solution import Certificate, Solution
from smoothsp.linear.estimators import classifier, whole_set
from smoothsp.linear.inputs import checks


class BinaryClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Two classes, and a score that is above 0 for the second."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        resume: Mapping[str, NDArray[Any]] | None = None,
    ) -> Any:
        """Solve for the weights.

        Parameters
        ----------
        X
            ``(samples, features)``, dense or CSR, float32 or float64, in which the
            weights come back.
        y
            ``(samples,)``: labels of any kind that can be sorted, of two classes.
        sample_weight
            ``(samples,)``, at least 0: a sample of weight 2 is the same as two samples,
            one of weight 0 as none. ``F1SVC`` takes whole numbers, for samples have no
            part of their own in F1.
        resume
            The ``state`` of a certificate, as the callback of a fit of the same data
            and parameters had it, ``max_epochs`` and ``tol`` apart: goes on from there
            bit for bit. ``numpy.savez(path, **state)`` and ``numpy.load(path)`` keep
            it.

        Returns
        -------
        self
            Ctrl-C does not raise: it leaves the weights reached, with their gap, and a
            warning. After an error the estimator is what it was before.
        """
        with classifier.unchanged_by_errors(self):
            self._fit(X, y, sample_weight, resume)
        classifier.warn_if_short(self)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, resume: Any) -> None:
        raise NotImplementedError

    def _samples(self, X: Any, y: Any, sample_weight: Any) -> classifier.Samples:
        samples = classifier.read_samples(self, X, y, sample_weight)
        checks.only_two_classes(samples.classes)
        return samples

    def _keep(
        self,
        samples: classifier.Samples,
        solve: Callable[[Callable[[Certificate], Any]], Solution],
        scale: float,
        constant: float,
    ) -> NDArray[np.float64]:
        """Run a solver of the whole set as ``whole_set.fit`` does; keep what it finds.

        Returns the weights in float64.
        """
        history: list[Certificate] = []
        w, status = whole_set.fit(self, solve, scale, history)
        classifier.keep_weights(self, w.astype(samples.X.dtype)[:, None], constant)
        classifier.keep_outcome(self, samples, status, history)
        return w

    def decision_function(self, X: Any) -> NDArray[Any]:
        """``X @ coef_[0] + intercept_``: above 0 for the second class."""
        return classifier.linear_scores(self, X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the best score, for each sample."""
        return classifier.best_class(self, self.decision_function(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags
