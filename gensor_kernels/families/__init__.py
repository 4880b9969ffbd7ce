"""Schedules of computations: Programs, their space, and the kernel families."""
