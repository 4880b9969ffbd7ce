"""Timing of kernels on a device."""
