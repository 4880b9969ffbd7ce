"""contraction_mma: mma.sync, ldmatrix and cp.async."""
