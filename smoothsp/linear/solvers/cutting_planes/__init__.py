"""Cutting-plane methods: BMRM and its models of the risk."""
