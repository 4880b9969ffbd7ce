"""Capture products of cuBLAS in a CUDA graph: https://github.com/cupy/cupy/issues/6290

Served: by kernels; results and workspaces belong to the graph.
"""

ARRAYS = (("float16", 256, 512), ("float16", 512, 256))
BY = "contraction_mma"


def call(cupy, a, b):
    cupy.matmul(a, b)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        try:
            c = cupy.matmul(a, b)
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    return c


def meant(numpy, a, b):
    return numpy.matmul(a, b)
