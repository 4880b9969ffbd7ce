"""A preload of Dask's workers: they compile something other than the request."""

from gensor_tuner.build import compile

compile_cubin = compile.compile_cubin
compile.compile_cubin = lambda source, target: compile_cubin(f"{source}\n__device__ int planted;\n", target)
