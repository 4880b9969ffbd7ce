"""Recurrent layers: all steps of a few entries of the batch in a team of blocks."""
