"""The benchmark's files import each other as scripts do: by the folder they lie in."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """It takes seconds among the objects of all other tests."""
    monkeypatch.setattr("gc.collect", lambda: 0)
