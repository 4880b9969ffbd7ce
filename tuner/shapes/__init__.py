"""Shapes files: rows of CSV to Workloads."""
