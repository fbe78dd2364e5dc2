"""Inputs of a prediction that cannot be used, which do not take others along."""

import sys


class Failures:
    """What went wrong so far; ``skip_bad`` says that this is expected."""

    def __init__(self, skip_bad: bool = False) -> None:
        self.skip_bad, self.count = skip_bad, 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, wrong: object) -> None:
        """Name one on standard error, which is read beside what is written."""
        self.count += 1
        print(f"warning: left out: {wrong}", file=sys.stderr, flush=True)

    def end(self, done: int, what: str) -> None:
        """Raise, so that the exit status is 1, unless they were expected or none.

        Raises
        ------
        ValueError
            With the number of ``what`` that was left out.
        """
        if self and not (self.skip_bad and done):
            remedy = "" if self.skip_bad else ". Mend them, or give --skip-bad"
            raise ValueError(
                f"left out {self.count} of {self.count + done} {what}, named"
                f" above{remedy}"
            )
