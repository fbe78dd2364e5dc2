"""Proxy of a problem that counts its oracle calls."""

from typing import Any

_COUNTED = (
    *("risk", "smoothed_risk", "smoothed_risk_of_scores", "smoothed_tangent"),
    "likelihood",
)


class CountedProblem:
    """Proxy that adds n to ``calls`` for each method that evaluates all examples."""

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
