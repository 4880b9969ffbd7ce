"""Workloads of the patch family that tests share, and the small Programs its mutants are tried on."""

from tests.mutator.engine.configuration import Configuration

from . import Contract
from .contraction_packed import convolution
from .window import padded

FIRST = {"layout": "nchw"}

CONTRACT = Contract(
    [
        ("sm_87", convolution(14, 64, 64, **FIRST, dtype="float16", epilogue="bias_relu", **padded())),
        ("sm_87", convolution(14, 96, 48, 5, **FIRST, dtype="int8", **padded(2))),
        ("sm_90", convolution(9, 40, 45, **FIRST, dtype="bfloat16", groups=5, stride_h=2, stride_w=2)),
        ("sm_87", convolution(15, 32, 32, **FIRST, r=5, s=10, dtype="int8", stride_h=2, stride_w=2)),
        ("sm_80", convolution(14, 128, 64, 1, **FIRST, dtype="float16", stride_h=2, stride_w=2)),
        ("sm_87", convolution(12, 32, 32, **FIRST, dtype="float16", groups=8, epilogue="bias", **padded())),
        ("sm_89", convolution(27, 20, 24, **FIRST, dtype="int8", dilation_w=2, epilogue="relu", **padded())),
    ]
)


def patch_configurations() -> list[Configuration]:
    """Both types, taps compiled in and not, a split, several rounds of pieces, narrow copies of filters."""
    base = {
        "block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 16, "copies": 1, "raster": 1, "split_k": 1,
        "epilogue_fixed": 0, "min_blocks": 0, "taps": 0,
    }  # fmt: skip
    half, integers = {**FIRST, "dtype": "float16"}, {**FIRST, "dtype": "int8"}
    made = {
        "any taps": (convolution(9, 64, 32, **half, groups=2), {"split_k": 2, "warp_m": 32}),
        "known taps": (convolution(9, 32, 32, **half), {"taps": 9, "block_k": 32, "raster": 2}),
        "short rows": (convolution(14, 32, 32, **half), {"taps": 9, "block_n": 64, "run": 16, "split_k": 2}),
        "stream": (convolution(9, 64, 32, **half, groups=2), {"stream": 8, "min_blocks": 1, "warp_m": 32}),
        "merged": (convolution(9, 32, 32, **half, groups=8), {"taps": 9, "merged": 4}),
        "merged, any taps": (convolution(9, 32, 48, **half, groups=8), {"block_m": 48, "merged": 8, "block_k": 64}),
        "merged bytes": (convolution(9, 64, 32, **integers, groups=8), {"block_n": 64, "run": 8, "merged": 2}),
        "bytes": (convolution(9, 36, 36, **integers), {"copies": 2}),
        "bytes, short rows": (convolution(9, 64, 32, **integers), {"block_n": 64, "run": 8}),
        "bytes, known taps": (convolution(9, 64, 32, **integers), {"taps": 9, "block_k": 64}),
    }
    return [
        Configuration(f"patch {name}", "patch", "sm_87", workload, base | values)
        for name, (workload, values) in made.items()
    ]
