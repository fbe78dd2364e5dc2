"""Engines of linear solvers: dual blocks, objectives, run loops and budgets."""
