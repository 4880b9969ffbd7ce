"""Element-wise programs of several arrays, in one launch."""
