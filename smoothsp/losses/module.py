"""Base class of losses."""

from typing import NoReturn

from torch import nn

from smoothsp.oracles._inference import checks


class Loss(nn.Module):
    """A module that computes a loss of a structure."""

    @staticmethod
    def __prepare_scriptable__() -> NoReturn:
        """Raise a TypeError: ``torch.jit.script`` calls this method first."""
        raise TypeError(checks.NO_TORCHSCRIPT)
