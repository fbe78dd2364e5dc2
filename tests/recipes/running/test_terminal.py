"""How recipes end in a terminal."""

import pytest

from runs import terminal


@pytest.mark.parametrize("said", ["Unable to allocate 14.9 GiB", ""])
def test_what_does_not_fit_in_memory_is_one_line(said):
    def recipe():
        raise MemoryError(said)

    expected = said or "not enough memory"
    with pytest.raises(SystemExit, match=f"error: .*{expected}"):
        terminal.run(recipe)
