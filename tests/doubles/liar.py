"""A preload of Dask's workers: they compile something other than the request."""

from gensor_tuner.build import binaries

compile_cubin = binaries.compile_cubin
binaries.compile_cubin = lambda source, target: compile_cubin(f"{source}\n__device__ int planted;\n", target)
