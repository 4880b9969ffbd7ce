"""Workloads of contraction_packed_wgmma: convolutions of images with channels first."""

from gensor_kernels.families.contraction.base import workspace_bytes
from gensor_kernels.families.contraction.rewrite import pack
from gensor_kernels.operators.windows import conv

from . import Contract, product_and_reduction
from .window import padded

SIZES = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3, "layout": "nchw"}


def workload(**sizes):
    """A convolution of eight images by 3 x 3 taps, with other sizes where given."""
    return conv.workload(**SIZES | {"dtype": "float16"} | sizes)


def check(lattice, program, launches, terms):
    """Packed filters, then the packed image, follow the partial sums, where the maps of the product find them."""
    problem, (_, main, *_) = lattice.workload, launches
    partial = workspace_bytes(program, problem)
    stored = {"c": None} if program["epilogue_staged"] == 3 else {}
    places = {"a": partial + pack.image_bytes(problem), "b": partial} | stored
    assert {each.operand: each.copied_at for each in main.maps} == places
    assert lattice.family.workspace(program, problem) == (partial + pack.workspace(problem), False)


CONTRACT = Contract(
    [
        ("sm_90", workload(n=16, c=512, k_out=512, **padded(), epilogue="bias")),
        ("sm_90", workload(h=7, w=7, dtype="bfloat16", epilogue="bias")),
        ("sm_90", workload(groups=2, epilogue="bias_add_relu")),
        ("sm_90", workload(dtype="int8")),
        ("sm_90", workload(dtype="float32", math="tf32")),
    ],
    entries=lambda program: ["contraction_pack", *product_and_reduction(program)],
    check=check,
    executed=False,
    spill_free=True,
)
