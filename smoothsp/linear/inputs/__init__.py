"""What may reach a solver: numbers and arrays checked, and memory that is there."""
