"""Programs, lattices, kernel arguments, and the contract of a kernel family."""
