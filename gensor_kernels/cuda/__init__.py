"""The CUDA sources of the kernel families, as package data."""
