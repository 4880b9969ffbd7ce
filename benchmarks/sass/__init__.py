"""Our machine code compared with Triton's and CUTLASS's: `python -m benchmarks.sass`. No GPU."""
