"""Circuits in Triton: see ``tiles`` for how one is gone through."""
