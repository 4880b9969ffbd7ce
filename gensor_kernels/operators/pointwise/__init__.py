"""Programs of element-wise operations on several arrays: one operator for every expression of them."""
