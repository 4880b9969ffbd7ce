"""Candidate Programs of a class and their binaries."""
