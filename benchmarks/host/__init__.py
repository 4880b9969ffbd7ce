"""What a call costs the host, measured without a GPU."""
