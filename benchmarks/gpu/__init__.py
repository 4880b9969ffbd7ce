"""The steps of `python -m benchmarks.device`.

journal    what was done: JSON lines, read again by a second run
supervise  steps in subprocesses, each with its share of the time; a dead context or a hang costs one item
session    what a step works with, and the loop over its items
facts, families, shipped, timing, models, compiled, public, fault_injection, sanitizer: the steps, most valuable first
real_size  a launch at real sizes, compared in parts with float64 (parts), and as a whole with the library
vendors    whom we are timed beside: CuPy (gensor_kernels.dispatch.functions.vendor_call), PyTorch (torch_calls,
torch_windows)
summary    the table at the end
"""
