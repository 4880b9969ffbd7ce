"""Workloads of the strip family that tests share, and the small Programs its mutants are tried on."""

from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from tests.mutator.engine.configuration import Configuration

from . import Contract
from .window import padded

FIRST = {"layout": "nchw"}
STEM = {"n": 2, "h": 64, "w": 64, "c": 3, "k_out": 64, "r": 7, "s": 7, "stride_h": 2, "stride_w": 2, **padded(3)}


def stem(**more) -> Workload:
    """The first convolution of a residual network on a small image, or one that differs from it."""
    return conv.workload(**{**STEM, "dtype": "float16"} | more)


SPEECH = {"h": 41, "w": 60, "c": 1, "k_out": 32, "r": 5, "s": 20, **padded(0), **FIRST}


def check(lattice, program, launches, terms):
    """Blocks walk the tiles, as many as the Program promises."""
    assert launches[0].per_sm == program["min_blocks"] >= terms["residents"]
    assert lattice.family.workspace(program, lattice.workload) == (0, False)


CONTRACT = Contract(
    [
        ("sm_87", stem(epilogue="bias_relu")),
        ("sm_90", stem(**FIRST, epilogue="bias_add_relu")),
        ("sm_87", stem(**SPEECH)),
        ("sm_80", stem(r=3, s=3, k_out=32, **padded(1), dtype="bfloat16", epilogue="relu6")),
        ("sm_90", stem(r=11, s=11, stride_h=4, stride_w=4, k_out=96, **padded(2), out="float32")),
        ("sm_89", stem(**FIRST, r=3, s=3, h=33, w=35, k_out=45, **padded(1), dtype="bfloat16")),
        ("sm_87", stem(c=4, r=3, s=3, stride_h=1, stride_w=1, k_out=24, weights="rsck", **padded(1))),
        ("sm_86", stem(c=6, r=2, s=5, stride_h=3, stride_w=1, k_out=17, **padded(2))),
    ],
    check=check,
    fewest_starters=3,
    starters=lambda starters, index: [starters[0], starters[-1].replace(epilogue_fixed=1)],
)


def strip_configurations() -> list[Configuration]:
    """Both orders of channels and of C, whole stores and single ones, an odd number of octets, one and several to a
    segment."""
    base = {"block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 32, "epilogue_fixed": 0, "min_blocks": 1}
    down = base | {"warp_m": 32, "warp_n": 16}
    odd = base | {"block_m": 48, "block_n": 16, "warp_n": 16, "vector_c": 2, "min_blocks": 2}  # filters by three warps
    small = {"h": 20, "w": 24, "k_out": 32}
    made = {
        "last": (stem(**small), base | {"vector_c": 16}),
        "first": (stem(**small | FIRST | {"r": 3, "s": 3} | padded(1)), base | {"vector_c": 16}),
        "first, single outputs": (stem(**small | FIRST | {"w": 21, "h": 22}), down | {"vector_c": 2}),
        "last, single filters": (stem(**small | {"k_out": 27, "r": 3}), odd),
        "folded": (stem(**SPEECH | {"h": 15}, dtype="bfloat16"), down | {"vector_c": 2}),
    }
    return [
        Configuration(f"strip {name}", "strip", "sm_87", workload, values) for name, (workload, values) in made.items()
    ]
