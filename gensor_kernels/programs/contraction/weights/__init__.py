"""contraction_weights_wgmma: products of warpgroups with quantised weights (sm_90a)."""
