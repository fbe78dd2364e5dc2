"""Propositional formulas in negation normal form, and where they come from."""
