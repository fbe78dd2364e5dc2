"""Computations of solvers on problems: dual blocks, objectives, budgets."""
