"""Folders of runs."""

from smoothsp.run_folder import held

__all__ = ["held"]
