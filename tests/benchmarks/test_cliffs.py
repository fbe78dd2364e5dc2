"""Harder inputs: each call that takes longer than it may has its reason beside it."""

import pytest

import cliffs


def test_a_call_that_takes_longer_than_it_may_has_a_reason():
    least = {"ordinary": 1e-4, "-inf": 1.2e-4, "lowest": 1.4e-4, "peaked": 2e-4}
    *_, masked, lowest, peaked, why = cliffs.line("Chain, 50 x 9", "decode", least)
    assert (masked, lowest, peaked) == ("1.20", "1.40 !", "2.00 !")
    assert why.startswith("lowest: ") and "; peaked: " in why
    assert cliffs.reason("Grammar, 10", "ties") == "unknown"


@pytest.mark.parametrize(("seconds", "missed"), [(49e-6, False), (51e-6, True)])
def test_short_calls_may_take_20_microseconds_more(seconds, missed):
    assert cliffs.is_cliff(seconds, 30e-6) == missed


def test_no_row_of_the_page_lacks_a_reason():
    page = cliffs.Path(cliffs.__file__).parent / "tables/cliffs.md"
    rows = [x for x in page.read_text().splitlines() if " ! |" in x]
    assert rows
    for row in rows:
        *_, why, _ = row.split("|")
        assert why.count(": ") == row.count(" ! |")
        assert "unknown" not in why
