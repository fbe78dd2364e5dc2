"""Long lists of instances: a few always run, the others with ``--long``."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest


def thinned(members: Iterable[Any], step: int, first: int = 0) -> Iterator[Any]:
    """Members for ``parametrize``; one in ``step`` always runs, from ``first`` on."""
    for number, member in enumerate(members):
        if number % step == first:
            yield member
        else:
            values = member if isinstance(member, tuple) else (member,)
            yield pytest.param(*values, marks=pytest.mark.long)
