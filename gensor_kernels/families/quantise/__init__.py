"""Rounding to block-scaled formats."""
