"""Search of a whole model within a time budget."""
