"""Circuits in Triton; ``tiles`` describes how a program evaluates one."""
