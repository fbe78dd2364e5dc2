"""Loops of linear models: scores from sparse features, and steps of solvers."""
