"""gemv: GEMV and skinny products."""
