"""What a compiled loop reads of a circuit, and where."""
