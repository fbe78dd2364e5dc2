"""Losses are formulas over a structure's answers."""
