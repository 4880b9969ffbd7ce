"""Workloads of contraction_floats_wgmma: long sums of float32, products and convolutions."""

from gensor_kernels.families.contraction.rewrite import split_float
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.windows.conv import workload as convolution

from . import Contract, copies_lie_behind_partial_sums, product_and_reduction
from .window import padded

IMAGE = {"n": 8, "h": 14, "w": 14, "c": 256, "k_out": 128, "r": 3, "s": 3, **padded()}
ONE_TAP = {"c": 1024, "r": 1, "s": 1, **padded(0)}
FIRST = {"layout": "nchw"}


def image(**changed):
    """A convolution of eight images by 3 x 3 taps, with other sizes where given."""
    return convolution(**IMAGE | {"dtype": "float32"} | changed)


CONTRACT = Contract(
    [
        ("sm_90", workload(1000, 1001, 1017, dtype="float32", epilogue=("bias", "gelu"))),
        ("sm_90", workload(512, 512, 1024, dtype="float32", epilogue=("bias", "gelu"))),
        ("sm_90", image(**ONE_TAP, stride_h=2, stride_w=2, weights="rsck")),
        ("sm_90", image(c=254)),
        ("sm_90", image(c=253, **FIRST)),
        ("sm_90", image(n=3, h=9, w=23, c=200, k_out=77, s=5, stride_h=2, dilation_w=2)),
        ("sm_90", image(**FIRST, c=512, s=1, pad_left=0, pad_right=0, stride_w=2, epilogue=("bias", "relu"))),
    ],
    entries=lambda program: ["contraction_divide", *product_and_reduction(program)],
    check=copies_lie_behind_partial_sums(split_float.copies),
    executed=False,
    spill_free=True,
)
