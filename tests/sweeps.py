"""Long lists of instances: a few always run, the others with ``--long``."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(members: Iterable[Any], step: int, first: int = 0) -> list[Any]:
    """Members for ``parametrize``; one in ``step`` always runs, from ``first`` on."""
    return [x if i % step == first else _long(x) for i, x in enumerate(members)]


def _long(member: Any) -> Any:
    values = member if isinstance(member, tuple) else (member,)
    return pytest.param(*values, marks=pytest.mark.long)
