"""A call as the caller wrote it: arguments by NumPy's rules, and the same result from the array library."""
