"""An executor of PTX, written from the PTX ISA manual alone: what NVRTC makes of a kernel, run on this machine's CPU.

It shares no code with the emulator, which executes the kernels' source: the two are independent readings of the manual.
"""
