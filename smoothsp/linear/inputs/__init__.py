"""Checks of inputs of solvers: numbers, arrays and memory."""
