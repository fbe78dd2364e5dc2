"""Approximate decoders for problems whose exact maximum is NP-hard."""
