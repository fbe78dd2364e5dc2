"""Weights of a network as the bytes of ``model.safetensors``, and back."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from torch import Tensor, nn

from smoothsp.weight_files import WEIGHTS, require_finite_weight

__all__ = ["WEIGHTS", "load_weights", "require_shapes", "to_safetensors"]


def to_safetensors(network: nn.Module) -> bytes:
    """All parameters and buffers."""
    return as_bytes(
        {
            name: value.detach().cpu().contiguous()
            for name, value in network.state_dict().items()
        }
    )


def require_shapes(
    path: Path, network: nn.Module, content: bytes, said_by: str
) -> dict[str, Tensor]:
    """The weights, if they are those of the network, in its shapes.

    ``said_by`` names the files that say which shapes these are. The network may be on
    the device ``meta``, where it takes no memory however large they are.

    Raises
    ------
    ValueError
        If weights are missing, too many or of wrong shapes: names them.
    """
    try:
        weights: dict[str, Tensor] = from_bytes(content)
    # the others: dtypes that are unknown, and shapes of 2^64 numbers
    except (LookupError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: expected safetensors, got {error}") from error
    own = network.state_dict()
    missing, extra = sorted(own.keys() - weights), sorted(weights.keys() - own)
    if missing or extra:
        said = [f"{len(missing)} missing ({', '.join(missing[:3])})"] if missing else []
        said += [f"{len(extra)} too many ({', '.join(extra[:3])})"] if extra else []
        raise ValueError(f"{path}: expected {len(own)} tensors, got {', '.join(said)}")
    for name in own:
        if weights[name].shape != own[name].shape:
            raise ValueError(
                f"{path}: expected {tuple(own[name].shape)} for {name} as in "
                f"{said_by}, got {tuple(weights[name].shape)}"
            )
    return weights


def load_weights(path: Path, network: nn.Module, content: bytes, said_by: str) -> None:
    """Set all of them; ``said_by`` names the files that say which shapes they have.

    Raises
    ------
    ValueError
        If weights are missing, too many, of wrong shapes or not finite: names them.
    """
    weights = require_shapes(path, network, content, said_by)
    for name, own in network.state_dict().items():
        require_finite_weight(path, name, weights[name], own.dtype)
    network.load_state_dict(weights)
