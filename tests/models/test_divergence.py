"""Trainings end with a sentence at a loss that is no number, or has grown tenfold."""

import math

import pytest
import torch

from smoothsp.divergence import require_sound
from smoothsp.models import Tagger

DATA = [(["Ann", "left"], ["B-PER", "O"]), (["She", "met", "Bob"], ["O", "O", "B-PER"])]


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


def test_scores_that_a_structure_refuses_are_named_by_the_rate():
    with pytest.raises(ValueError, match=r"^(weights|loss): expected .* size") as found:
        Tagger.train(DATA * 12, epochs=2, batch=4, rate=1e30)
    assert "the training diverged. Lower the rate" in str(found.value)
    assert torch.is_grad_enabled()
