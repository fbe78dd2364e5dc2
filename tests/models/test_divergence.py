"""Trainings end with a sentence at a loss that is no number, or has grown tenfold."""

import math

import pytest
import torch
from smoothsp.models.training import Options, Training

from smoothsp.divergence import require_sound

WORDS = [["Ann", "left"], ["She", "met", "Bob"]] * 12
TAGS = [["S-PER", "O"], ["O", "O", "S-PER"]] * 12


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number(loss):
    message = rf"loss: expected a finite number, got {loss:g} .* size 0.01: .* Lower"
    with pytest.raises(ValueError, match=message):
        require_sound(loss, 0.01)


def test_a_loss_that_has_grown_tenfold():
    assert require_sound(20.0, 0.01, 2.0) == 20.0
    message = r"expected at most 10 times the 2 of the first epoch, got 20.5 .* 0.01"
    with pytest.raises(ValueError, match=message):
        require_sound(20.5, 0.01, 2.0)


def test_a_tagger_that_diverges_says_so_within_the_epoch():
    run = Training(WORDS, TAGS, options=Options(epochs=2, batch=4))
    steps = []

    def spoil(loss, step=run._step):
        steps.append(loss)
        found = step(loss)
        return math.nan if len(steps) == 2 else found

    run._step = spoil
    with pytest.raises(ValueError, match=r"got nan with steps of size .* the rate"):
        run.epoch()
    assert len(steps) == 2


@pytest.mark.parametrize("value", [math.nan, 1e30])
def test_weights_whose_scores_a_structure_refuses_are_named_by_the_rate(value):
    run = Training(WORDS, TAGS, options=Options(epochs=2, batch=4))
    torch.nn.init.constant_(run.model.head.transitions, value)
    message = rf"weights: expected numbers below 10000, got {value:.3g} with steps of"
    with pytest.raises(ValueError, match=message.replace("+", r"\+")) as found:
        run.epoch()
    assert "the training diverged. Lower the rate" in str(found.value)
    assert "expected numbers below 2^40" in str(found.value.__cause__)


def test_a_tagger_whose_second_epoch_is_ten_times_worse_says_so():
    run = Training(WORDS, TAGS, options=Options(epochs=2, batch=4))
    run.keep_if_best(run.epoch())
    run.history[0]["loss"] /= 1e6
    with pytest.raises(ValueError, match=r"at most 10 times the .* of the first epoch"):
        run.epoch()
    assert torch.is_grad_enabled()
