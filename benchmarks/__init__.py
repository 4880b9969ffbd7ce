"""Benchmarks: `python -m benchmarks.<name>`, and pytest-benchmark suites in bench_*.py."""
