"""Races between kernels and the array library, and background tuning."""
