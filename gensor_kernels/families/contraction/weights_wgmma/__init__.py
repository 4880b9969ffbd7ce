"""contraction_weights_wgmma: warpgroup MMA with quantised weights in registers (sm_90a)."""
