"""Execution of kernels on the emulator or a device, compared with float64."""
