"""Threads of recipes whose networks are small."""

import os

import torch


def one() -> None:
    """Compute in one thread, unless ``OMP_NUM_THREADS`` is set.

    A step of a small network is shorter than the wait of its threads for each other
    where other processes use the cores.
    """
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
