"""Races of circuits: what is raced is right, and a wrong answer stops the race."""

import pytest
import torch

import circuits
from dynamic_programmes import races

SMALL = {
    "dependencies": lambda: races.dependencies(4, 1),
    "best dependencies": lambda: races.best_dependencies(4, 1, 1),
    "3 best dependencies": lambda: races.best_dependencies(4, 3, 1),
    "spans": lambda: races.spans(4, 1),
    "best spans": lambda: races.best_spans(4, 1),
    "grammar": lambda: races.grammar(3, 4, 1),
    "segments": lambda: races.segments(6, 2, 3, 1, given=True),
    "segments of positions": lambda: races.segments(6, 2, 3, 1, given=False),
    "ctc": lambda: races.ctc(8, 2, 1),
    "warping": lambda: races.warping(5, 4, 1),
    "tree": lambda: races.tree(5, 3, 1),
    "formula": lambda: races.formula("two of five", *races.exactly(2, 5), 1),
}


@pytest.mark.parametrize("name", SMALL)
def test_both_dtypes_agree(name):
    race = SMALL[name]()
    exact = race.ours(torch.float64)()
    circuits.agree(race, "smoothsp", race.ours(torch.float32)(), exact, gradients=True)


@pytest.mark.parametrize("name", ["ctc", "tree"])
def test_peers_in_torch_agree_and_are_timed(name):
    ours, theirs = circuits.race_once(SMALL[name](), rounds=1)
    assert ours["method"] == "smoothsp" and theirs["note"] == ""
    assert float(theirs["ratio"]) > 0


def test_a_wrong_answer_stops_the_race():
    race = SMALL["dependencies"]()
    exact = race.ours(torch.float64)()
    wrong = tuple(x + (i == 1) * 0.1 for i, x in enumerate(exact))
    circuits.agree(race, "some", wrong, exact, gradients=False)
    with pytest.raises(SystemExit, match="some is off by"):
        circuits.agree(race, "some", wrong, exact, gradients=True)


def test_a_peer_that_is_not_there_is_named():
    def fails(dtype):
        raise ImportError("no module named peer")

    race = races.Race("r", 2.0, SMALL["dependencies"]().ours, {"peer": fails})
    rows = circuits.race_once(race, rounds=1)
    assert rows[1]["note"] == "ImportError: no module named peer"
