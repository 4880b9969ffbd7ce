"""contraction_strip: implicit GEMM of convolutions with few channels."""
