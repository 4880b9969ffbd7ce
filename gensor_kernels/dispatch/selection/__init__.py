"""Which kernel serves a call: the kernels of one Arch in memory, and the four tiers."""
