"""Transposed convolutions that tests of families by phases share, and small Programs their mutants are tried on."""

from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from tests.mutator.engine.configuration import Configuration

from . import Contract
from .window import padded


def transposed(**sizes) -> Workload:
    """A transposed convolution of two images by 4 x 4 taps and a stride of 2, with other sizes where given."""
    square = {"n": 2, "h": 9, "w": 9, "c": 32, "k_out": 24, "r": 4, "s": 4, "stride_h": 2, "stride_w": 2}
    return conv.workload(**square | padded() | {"transposed": True} | sizes)


def entries(program: Program) -> list[str]:
    """The phases' outputs are put in their places by a second launch, which also adds the parts of a split."""
    return [program.family, "contraction_interleave"]


CONTRACT = Contract(
    [
        ("sm_87", transposed(epilogue="bias_relu")),
        ("sm_90", transposed(weights="rsck", c=24, k_out=6, groups=2, r=3, stride_w=3, dilation_w=2)),
        ("sm_75", transposed(dtype="float16", c=12, k_out=5)),
        ("sm_80", transposed(dtype="float64", k_out=45)),
        ("sm_89", transposed(dtype="complex64", groups=2)),
        ("sm_86", transposed(dtype="int8")),
    ],
    entries=entries,
    starters=lambda starters, index: [],
    relaxed={"min_blocks": 1},
)


def phased_configurations() -> list[Configuration]:
    """Both orders of filters in memory, groups, parts of k that are left without steps, types of one element an
    access; on tensor cores both ways of copies and sums that are formed again."""
    simt = {
        "block_m": 16, "block_n": 16, "block_k": 8, "thread_m": 2, "thread_n": 4, "vthread_m": 1, "vthread_n": 1,
        "lanes_m": 8, "raster": 1, "split_k": 1, "stages": 2, "pad": 1, "epilogue_fixed": 0, "min_blocks": 1,
        "masked": 1,
    }  # fmt: skip
    mma = {
        "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "raster": 1, "split_k": 1,
        "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 1, "swizzle": 1, "instruction": 0, "stages": 3,
        "copy": 1, "masked": 1,
    }  # fmt: skip
    half, floats = {"dtype": "float16"}, {"c": 128, "dtype": "float32"}
    made = {
        "phased": {
            "phases": (transposed(), {"raster": 2}),
            "phases, filters last": (transposed(weights="rsck", groups=2), {"split_k": 2, "stages": 1, "masked": 0}),
            "phases, parts": (transposed(k_out=5, dtype="float64"), {"split_k": 3, "vector_a": 8, "vector_c": 8}),
        },
        "phased_mma": {
            "phases": (transposed(**half), {"raster": 2}),
            "phases, filters last": (
                transposed(weights="rsck", groups=2, **half),
                {"split_k": 2, "stages": 2, "block_k": 16, "warp_m": 32, "masked": 0},
            ),
            "phases, parts": (
                transposed(k_out=5, **half),
                {"split_k": 3, "copy": 0, "stages": 2, "vector_a": 2, "vector_c": 2},
            ),
            "phases, floats": (transposed(**floats), {"instruction": 5}),
        },
    }
    return [
        Configuration(f"{group} {name}", group, "sm_87", workload, (simt if group == "phased" else mma) | values)
        for group, each in made.items()
        for name, (workload, values) in each.items()
    ]
