"""Tuning of users' own kernels: counted from machine code, executed from PTX."""
