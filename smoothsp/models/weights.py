"""Weights of a network to and from the bytes of ``model.safetensors``."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from torch import Tensor, nn

from smoothsp.weight_files import WEIGHTS, require_finite_weight

__all__ = ["WEIGHTS", "load_weights", "require_shapes", "to_safetensors"]


def to_safetensors(network: nn.Module) -> bytes:
    """Return all parameters and buffers as safetensors."""
    return as_bytes(
        {
            name: value.detach().cpu().contiguous()
            for name, value in network.state_dict().items()
        }
    )


def require_shapes(
    path: Path, network: nn.Module, content: bytes, source_names: str
) -> dict[str, Tensor]:
    """Parse weights, and raise unless names and shapes are those of the network.

    ``source_names`` names the files that determine the shapes, for error messages. The
    network may be on the meta device, where it takes no memory.

    Raises
    ------
    ValueError
        If weights are missing, too many or of wrong shapes: names them.
    """
    try:
        weights: dict[str, Tensor] = from_bytes(content)
    # Unknown dtypes and shapes of 2^64 entries raise LookupError and RuntimeError.
    except (LookupError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: expected safetensors, got {error}") from error
    expected = network.state_dict()
    missing, extra = (
        sorted(expected.keys() - weights),
        sorted(weights.keys() - expected),
    )
    if missing or extra:
        differences = (
            [f"{len(missing)} missing ({', '.join(missing[:3])})"] if missing else []
        )
        differences += (
            [f"{len(extra)} too many ({', '.join(extra[:3])})"] if extra else []
        )
        raise ValueError(
            f"{path}: expected {len(expected)} tensors, got {', '.join(differences)}"
        )
    for name in expected:
        if weights[name].shape != expected[name].shape:
            raise ValueError(
                f"{path}: expected {tuple(expected[name].shape)} for {name} as in "
                f"{source_names}, got {tuple(weights[name].shape)}"
            )
    return weights


def load_weights(
    path: Path, network: nn.Module, content: bytes, source_names: str
) -> None:
    """Load weights into a network; ``source_names`` as for ``require_shapes``.

    Raises
    ------
    ValueError
        If weights are missing, too many, of wrong shapes or not finite: names them.
    """
    weights = require_shapes(path, network, content, source_names)
    for name, parameter in network.state_dict().items():
        require_finite_weight(path, name, weights[name], parameter.dtype)
    network.load_state_dict(weights)
