"""Python functions of arrays as one kernel: tracing, and the calls of what was traced."""
