"""attention_tcgen05: fused attention on products in tensor memory, fed by tensor copies (sm_100a)."""
