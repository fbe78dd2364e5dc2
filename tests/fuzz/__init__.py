"""Random structures against an enumeration of their outputs."""
