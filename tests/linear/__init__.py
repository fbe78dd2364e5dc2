"""Certified linear models: their optimum, their certificates, their manners."""
