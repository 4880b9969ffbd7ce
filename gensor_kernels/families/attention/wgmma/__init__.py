"""attention_wgmma: fused attention on warpgroup products, fed by tensor copies (sm_90a)."""
