"""Chance and running averages as other recipes have them, too."""

from smoothsp.models.training import running_average, seed_all

__all__ = ["running_average", "seed_all"]
