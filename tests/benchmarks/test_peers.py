"""Peers are optional: an absent one is left out, and the line says what to install."""

import pytest

from methods import peers


@pytest.fixture
def only(monkeypatch):
    """Let only the named modules be found."""

    def found(*modules):
        monkeypatch.setattr(peers, "find_spec", lambda m: m if m in modules else None)

    return found


def test_an_absent_peer_is_left_out(only):
    only("torch", "torchcrf")
    assert list(peers.builders()) == ["smoothsp", "PyTorch loop", "pytorch-crf"]
    assert "TorchCRF is left out: pip install TorchCRF" in peers.absent()
    assert "python-crfsuite is left out: pip install python-crfsuite" in peers.absent()
    assert len(peers.absent()) == 4
