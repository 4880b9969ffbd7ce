"""Pretuned CUDA kernels for CuPy."""
