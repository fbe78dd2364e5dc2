"""Loops of linear models: sparse features to scores, and the steps of solvers."""
