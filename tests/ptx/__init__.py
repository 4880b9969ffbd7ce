"""Tests of the executor of PTX (gensor_kernels/devices/ptx), written from the PTX ISA manual alone.

It shares no code with the emulator, which executes the kernels' source: the two are independent readings of the manual.
"""
