"""Validation and conversion of inputs: numbers, arrays, sparse matrices, states."""
