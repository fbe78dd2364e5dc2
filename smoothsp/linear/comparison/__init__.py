"""Comparison of solvers with equal budgets."""
