"""Workloads of contraction_floats_wgmma: long sums of float32, products and convolutions."""

from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.windows.conv import workload as convolution
from gensor_kernels.programs.contraction.rewrite import copy_launch, split_float

from . import Contract, product_and_reduction
from .window import padded

IMAGE = {"n": 8, "h": 14, "w": 14, "c": 256, "k_out": 128, "r": 3, "s": 3, **padded()}
ONE_TAP = {"c": 1024, "r": 1, "s": 1, **padded(0)}
FIRST = {"layout": "nchw"}


def image(**changed):
    """A convolution of eight images by 3 x 3 taps, unless told otherwise."""
    return convolution(**IMAGE | {"dtype": "float32"} | changed)


def check(lattice, program, launches, terms):
    """Parts of operands lie behind the partial sums."""
    places, end = copy_launch.offsets(split_float.copies(lattice.workload), program, lattice.workload)
    assert (program["split_k"] > 1) == (min(places.values()) > 0)
    assert lattice.family.workspace(program, lattice.workload) == (end, False)


CONTRACT = Contract(
    [
        ("sm_90", workload(1000, 1001, 1017, dtype="float32", epilogue=("bias", "gelu"))),
        ("sm_90", workload(512, 512, 1024, dtype="float32", epilogue=("bias", "gelu"))),
        ("sm_90", image(**ONE_TAP, stride_h=2, stride_w=2, weights="rsck")),
        ("sm_90", image(c=254)),
        ("sm_90", image(c=253, **FIRST)),
    ],
    entries=lambda program: ["contraction_divide", *product_and_reduction(program)],
    check=check,
    executed=False,
    randoms=3,
    spill_free=True,
)
