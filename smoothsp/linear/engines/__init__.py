"""What a solver asks a problem: blocks of the dual, objectives, budgets."""
