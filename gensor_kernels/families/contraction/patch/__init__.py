"""contraction_patch: implicit GEMM of NCHW convolutions."""
