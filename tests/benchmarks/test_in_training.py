"""The share of the loss in a training step is measured on the recipe's own network."""

import pytest

import in_training


@pytest.mark.long
def test_every_loss_has_its_share_of_a_step():
    rows = in_training.measure(None, steps=5)
    assert {row["loss"] for row in rows} - {in_training.PEER} == set(in_training.OURS)
    for row in rows:
        assert 0 < float(row["loss_ms"]) < float(row["step_ms"])
