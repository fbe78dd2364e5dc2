"""Common parts of inference in all structures: ops, positions, checks."""
