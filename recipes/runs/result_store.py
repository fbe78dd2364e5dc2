"""Results of single fits, kept in a file from which a stopped run goes on."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from runs import files
from smoothsp.checkpoints import require_file, require_same

Result = dict[str, Any]
RESTART_HINT = "Start over without --resume, or with another --out"
Report = TypeVar("Report")


class ResultStore:
    """A dictionary that is in its file, whole, after each fit.

    ``settings`` decide the numbers of a fit, besides its own name.
    """

    def __init__(self, path: Path, settings: dict[str, Any], resume: bool) -> None:
        # as they are read back
        self.path, self.settings = path, json.loads(json.dumps(settings))
        self._results: dict[str, Result] = {}
        self._resumed = resume
        if not resume:
            return
        require_file(path)
        try:
            saved = json.loads(path.read_bytes())
            began, self._results = dict(saved["settings"]), dict(saved["cells"])
            if not all(isinstance(cell, dict) for cell in self._results.values()):
                raise ValueError("cells that are no objects")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"{path}: expected the cells of this recipe, got another file: {error}."
                f" {RESTART_HINT}"
            ) from error
        require_same(path, began, self.settings)
        print(f"resuming {path}")

    @contextmanager
    def print_resume_hint(self) -> Iterator[None]:
        """Print how to continue if Ctrl-C ends the fits."""
        try:
            yield
        except KeyboardInterrupt:
            hint = f"{self.path} has what is done, --resume goes on"
            print(f"\nstopped; {hint if self._results else 'nothing is kept'}")
            raise

    def __contains__(self, key: str) -> bool:
        return key in self._results

    def __getitem__(self, key: str) -> Result:
        return self._results[key]

    def put(self, key: str, result: Result) -> None:
        """Add one, and write all."""
        self._results[key] = result
        content = {"settings": self.settings, "cells": self._results}
        files.write_json(self.path, content)

    def reraise_with_path(self, report: Callable[[], Report]) -> Report:
        """The report; a ValueError names the file if its cells do not fit."""
        if not self._resumed:
            return report()
        try:
            return report()
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.path}: expected the cells of this recipe, got some that were"
                f" edited or are of another version ({type(error).__name__}: {error})."
                f" {RESTART_HINT}"
            ) from error
