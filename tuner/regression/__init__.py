"""`gensor-tune check`: did our kernels become slower, or did the machine or the vendor's library change?

runs.py reads the files of pytest-benchmark and `python -m benchmarks.device`; verdicts.py compares two sets of repeated
runs and attributes a change; command.py prints verdicts and writes JUnit XML.
"""

TOLERANCE = 0.02  # smaller slowdowns are not worth a failed build, however certain
LIMIT = 0.15  # a check that cannot exclude a slowdown by as much does not pass
