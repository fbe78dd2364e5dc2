"""The table of questions in docs/your_own_structure.md is what losses ask."""

import re
from pathlib import Path

import pytest
import torch

from smoothsp import losses
from smoothsp.oracles import Multiclass

PAGE = Path(__file__).parents[2] / "docs" / "your_own_structure.md"
TABLES = re.findall(r"^\| `((\w+)\(.*)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
ROWS = [(text, rest) for text, name, rest in TABLES if name in losses.__all__]
SETTINGS = {**vars(losses), "mu": 5.0, "k": 2}
POOLS = losses.ListwiseRanking | losses.NoiseContrastive | losses.PairwiseRanking
# These return decisions.
LAYERS = {"ImplicitMLE", "Interpolation", "NegativeIdentity"}
OF_SETS = (losses.LatentHinge, losses.MarginalLikelihood)
# Of ties, so that smoothing over few outputs is not exact; and a row without any, which
# is done before the other.
SCORES = torch.zeros(2, 8).index_fill(0, torch.tensor(1), -100.0)
SCORES[1, 0] = 0.0
Y, ALLOWED = torch.tensor([0, 0]), torch.arange(8).expand(2, 8) < 1


class Recorder:
    """A structure that notes which questions it is asked."""

    def __init__(self, structure, asked):
        self.structure, self.asked = structure, asked

    def __getattr__(self, name):
        if name.startswith("_"):  # of the library's own structures
            raise AttributeError(name)
        value = getattr(self.structure, name)
        if not callable(value):
            self.asked.add(name)
            return value

        def question(*arguments, **named):
            self.asked.add(name)
            found = value(*arguments, **named)
            again = isinstance(found, Multiclass)
            return Recorder(found, self.asked) if again else found

        return question


def asked(loss, **options):
    """What a loss asks of a structure."""
    recorder = Recorder(Multiclass(SCORES), set())
    gold = [ALLOWED if isinstance(loss, OF_SETS) else Y]
    if isinstance(loss, losses.SPOPlus | POOLS):
        gold.append(SCORES)
    if isinstance(loss, POOLS):
        gold.append(torch.arange(8))
    loss(recorder, *gold, **options)
    return recorder.asked


def make(text):
    return eval(text, SETTINGS)


@pytest.mark.parametrize(("text", "questions"), ROWS)
def test_losses_ask_what_the_table_says(text, questions):
    assert asked(make(text)) == set(re.findall(r"`(\w+)`", questions))


def test_every_loss_has_a_row():
    classes = (getattr(losses, name) for name in losses.__all__)
    modules = {x for x in classes if isinstance(x, type)}
    modules = {x.__name__ for x in modules if issubclass(x, torch.nn.Module)}
    assert {text.split("(")[0] for text, _ in ROWS} == modules - LAYERS


def test_costs_and_weights_ask_what_the_page_says():
    for smoothing in (None, losses.Entropy(5.0), losses.L2(5.0, 2)):
        for loss in (losses.StructuralHinge, losses.LatentHinge):
            found = asked(loss(smoothing, cost=None))
            assert not found & {"hamming", "augment"}
    weighted = asked(losses.CRFLoss(class_weight=torch.ones(8)))
    assert weighted == {"log_prob", "label_counts", "lengths"}
    assert asked(losses.CRFLoss(), weight=torch.ones(2)) == {"log_prob", "lengths"}
    assert asked(losses.CRFLoss(reduction="token_mean")) == {"log_prob", "lengths"}
