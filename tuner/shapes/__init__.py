"""Shapes files: CSV rows to Workloads."""
