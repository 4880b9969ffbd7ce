"""Contractions of two or more arrays, as strided matrix products."""
