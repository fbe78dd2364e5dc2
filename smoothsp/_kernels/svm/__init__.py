"""Blocks of multiclass and binary duals, and projections onto their feasible sets."""
