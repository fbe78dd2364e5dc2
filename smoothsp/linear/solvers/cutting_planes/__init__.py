"""Cutting planes, and the small problem that they leave."""
