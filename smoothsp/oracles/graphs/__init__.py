"""Models of graphs: scores of nodes, and of the two nodes of each edge."""
