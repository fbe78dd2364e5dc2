"""Dual coordinate descent for binary and multiclass SVMs."""
