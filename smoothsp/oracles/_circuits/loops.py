"""Choice of the compiled loops by the device of the potentials."""

from typing import Any

from smoothsp.oracles._circuits import compiled, on_device
from smoothsp.oracles._circuits.query import Leaves

# Modules of the same functions, by the type of the device that they run on.
LOOPS: dict[str, Any] = {"cpu": compiled, "cuda": on_device}


def loops_for(leaves: Leaves) -> Any:
    """Return the module."""
    return LOOPS[leaves.own[0].device.type]
