"""From a Program to CUDA source, and from source to a cubin."""
