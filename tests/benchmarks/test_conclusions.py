"""What the page of conclusions says is what the tables behind it say."""

import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGE = (BENCHMARKS / "README.md").read_text()
# prose and rows with numbers that are printed, and the page that each leads to
CLAIMS = re.findall(r"^(.*\d+\.\d+.*)\((tables/[\w.]+)[#)].*$", PAGE, re.MULTILINE)


def test_there_are_claims():
    assert len(CLAIMS) > 10


@pytest.mark.parametrize(("claim", "page"), CLAIMS, ids=[x[:40] for x, _ in CLAIMS])
def test_every_number_stands_in_its_table(claim, page):
    text = (BENCHMARKS / page).read_text()
    numbers = re.findall(r"\d+\.\d+", claim)
    missing = [x for x in numbers if not re.search(rf"(?<![\d.]){re.escape(x)}", text)]
    assert not missing, f"{page} has no {missing}: correct the conclusion"
