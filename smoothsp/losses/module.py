"""Base class of losses."""

from typing import NoReturn

from torch import nn

from smoothsp.oracles._inference import checks


class Loss(nn.Module):
    """A module that computes a loss of a structure."""

    @staticmethod
    def __prepare_scriptable__() -> NoReturn:
        """Raise an error: what ``torch.jit.script`` calls first."""
        raise TypeError(checks.NO_TORCHSCRIPT)
