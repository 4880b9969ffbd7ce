"""The steps of `python -m benchmarks.device`.

journal    what was done: JSON lines, read again by a second run
supervise  steps in subprocesses, each with its share of the time; a dead context or a hang costs one item
session    what a step works with, and the loop over its items
facts, families, shipped, timing, public, plants, sanitizer: the steps, most valuable first
summary    the table at the end
"""
