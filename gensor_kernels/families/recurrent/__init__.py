"""Recurrent layers: all steps of a few entries of the batch in one block."""
