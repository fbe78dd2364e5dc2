"""Coordinate descent on the duals of multiclass and binary SVMs."""
