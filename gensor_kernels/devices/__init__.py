"""What executes kernels: a GPU through CuPy, or the emulator on the host."""
