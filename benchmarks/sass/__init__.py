"""Our machine code beside Triton's and CUTLASS's, compiled in the same run: `python -m benchmarks.sass`. No GPU."""
