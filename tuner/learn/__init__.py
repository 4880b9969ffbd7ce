"""Residuals of the potential, fitted to timings."""
