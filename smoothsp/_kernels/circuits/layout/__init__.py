"""Memory layouts of circuits, for compiled loops and for devices."""
