"""contraction_wgmma: warpgroup MMA fed by TMA (sm_90a)."""
