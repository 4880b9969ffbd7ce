"""Headers that the kernels of all families share."""
