"""Grouped convolution with few channels per group on the CUDA cores."""
