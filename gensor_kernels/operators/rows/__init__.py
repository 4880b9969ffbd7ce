"""Reductions, softmax, norms and element-wise maps of rows."""
