"""`gensor-tune check`: did our kernels become slower, or did the machine or the vendor's library change?

runs.py reads what pytest-benchmark and `python -m benchmarks.device` write; statistics.py compares two sets of repeated
runs; verdicts.py says who moved; table.py prints it and writes JUnit.
"""

TOLERANCE = 0.02  # smaller slowdowns are not worth a failed build, however certain
