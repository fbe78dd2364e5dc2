"""A problem that counts its oracle calls."""

from typing import Any

_COUNTED = (
    *("risk", "smoothed_risk", "smoothed_risk_of_scores", "smoothed_tangent"),
    "likelihood",
)


class CountedProblem:
    """A problem that counts the maxima and sums over outputs that it computes."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.calls = problem, 0

    def __len__(self) -> int:
        return len(self.problem)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.problem, name)
        if name not in _COUNTED:
            return attribute

        def counted(*arguments: Any) -> Any:
            self.calls += len(self.problem)
            return attribute(*arguments)

        return counted
