"""Element types, epilogue operations, Workloads and memory layouts."""
