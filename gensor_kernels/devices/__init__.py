"""Devices that execute kernels: a GPU through CuPy, or the emulator on the host."""
