"""Races of factor graphs: bounds and best values are those of an integer program."""

import pytest

import factor_graphs


@pytest.mark.long
@pytest.mark.parametrize("name", factor_graphs.INSTANCES)
def test_values_agree_with_peers(name):
    factor_graphs.check(name, 3)
