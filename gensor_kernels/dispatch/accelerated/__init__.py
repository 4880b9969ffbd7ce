"""Existing CuPy code through this package: the functions that are replaced, whole programs, and the report."""
