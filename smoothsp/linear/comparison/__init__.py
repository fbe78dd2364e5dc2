"""Solvers side by side, with equal budgets."""
