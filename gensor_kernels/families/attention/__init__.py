"""attention: fused softmax(Q K^T) V."""
