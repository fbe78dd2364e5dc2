"""What questions of all structures share: ops, positions, checks."""
