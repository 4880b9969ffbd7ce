"""Executes the kernel sources on a CPU."""
