"""Base class of binary classifiers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.estimators import batch_fit, classifier
from smoothsp.linear.inputs import checks


class BinaryClassifier(classifier.CertifiedClassifier):
    """Two classes, and a score that is above 0 for the second."""

    def _validate_binary(
        self, X: Any, y: Any, sample_weight: Any
    ) -> classifier.Samples:
        samples = classifier.validate_training_data(self, X, y, sample_weight)
        checks.require_binary(samples.classes)
        return samples

    def _run_and_store(
        self,
        samples: classifier.Samples,
        solve: batch_fit.Solve,
        scale: float,
        intercept_value: float,
    ) -> NDArray[np.float64]:
        """Run a batch solver and set the fitted attributes; return float64 weights."""
        history: list[Certificate] = []
        w, status = batch_fit.run_batch_solver(
            self, solve, scale, history, self.max_epochs
        )
        classifier.set_coef(self, w.astype(samples.X.dtype)[:, None], intercept_value)
        classifier.set_fit_results(self, samples, status, history)
        return w

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
