"""contraction_simt: multiply-adds on CUDA cores."""
