"""The graph of a model."""
