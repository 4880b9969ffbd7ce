"""A strict double of the CUDA driver and of CuPy's surface over it: as unfriendly as the driver may be.

Modules are parsed, limits of the part enforced, streams executed late, errors asynchronous and sticky, and memory
reused at once. `machine.Machine` puts it under the real CudaDevice; each other file holds one concept of the driver's.
"""
