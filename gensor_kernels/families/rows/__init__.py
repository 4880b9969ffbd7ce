"""rows: reductions, softmax, norms and element-wise maps."""
