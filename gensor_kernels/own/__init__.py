"""Users' own CUDA kernels with knobs: tuned without a GPU, verified, stored and launched as this package's kernels are.

Examples
--------
>>> import gensor_kernels.own as own
>>> kernel = own.Kernel("conv.cu", "convolution", knobs={...}, block=..., grid=..., args=[...])  # doctest: +SKIP
>>> best = kernel.tune("orin-nano-8gb", sizes={"w": 4096, "h": 4096}, reference=my_numpy)  # doctest: +SKIP
>>> best.save("conv.db")  # doctest: +SKIP
>>> convolution = own.load("conv.db")  # doctest: +SKIP
>>> convolution(out, image, 4096, 4096)  # doctest: +SKIP
"""

from .description import In, InOut, Out, Scalar
from .kernel import Kernel
from .loaded import Loaded, load
from .t1 import from_t1

__all__ = ["In", "InOut", "Kernel", "Loaded", "Out", "Scalar", "from_t1", "load"]
