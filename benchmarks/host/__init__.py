"""Host time of calls, measured without a GPU."""
