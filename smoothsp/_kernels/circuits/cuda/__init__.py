"""Circuits in Triton: ``tiles`` says how a program evaluates one."""
