"""Long lists of instances: a few always run, the others with ``--long``."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

# Whether --long was given: conftest says so before tests are imported.
long = False


def drawn_from(members: Sequence[Any]) -> st.SearchStrategy:
    """One of them, drawn; always the first without ``--long``."""
    return st.sampled_from(members if long else members[:1])


def thinned(members: Iterable[Any], step: int, first: int = 0) -> list[Any]:
    """Members for ``parametrize``; one in ``step`` always runs, from ``first`` on."""
    return [x if i % step == first else _long(x) for i, x in enumerate(members)]


def _long(member: Any) -> Any:
    values = member if isinstance(member, tuple) else (member,)
    return pytest.param(*values, marks=pytest.mark.long)
