"""Workloads of the packed family that tests share, and the small Programs its mutants are tried on."""

from gensor_kernels.families.contraction.rewrite import pack
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from tests.families.workloads.launch_rules import mma_launch
from tests.mutator.engine.configuration import Configuration

from . import Contract, product_and_reduction
from .window import padded


def convolution(side: int, c: int, k: int, taps: int = 3, **more) -> Workload:
    """A square convolution of two images."""
    return conv.workload(**{"n": 2, "h": side, "w": side, "c": c, "k_out": k, "r": taps, "s": taps} | more)


def check(lattice, program, launches, terms):
    """Operands are packed by blocks without shared memory, into the workspace."""
    first, problem = launches[0], lattice.workload
    assert (first.block, first.shared_bytes) == (256, 0)
    assert lattice.family.workspace(program, problem)[0] >= pack.workspace(problem) > 0
    assert terms["after"] >= pack.cost(problem, lattice.arch)[0] * 0.99


CONTRACT = Contract(
    [
        ("sm_87", convolution(28, 64, 64, layout="nchw", dtype="float16", epilogue="bias_relu", **padded())),
        ("sm_90", convolution(32, 3, 64, 7, dtype="float16", stride_h=2, stride_w=2, **padded(3))),
        ("sm_87", convolution(14, 40, 48, layout="nchw", dtype="int8", groups=2)),
        ("sm_75", convolution(14, 20, 45, dtype="int8", dilation_h=2, **padded())),
        ("sm_80", convolution(14, 12, 64, weights="rsck", dtype="bfloat16", epilogue="bias_add_relu")),
        ("sm_87", convolution(14, 128, 64, 1, layout="nchw", dtype="float16", stride_h=2, stride_w=2)),
        ("sm_89", convolution(14, 3, 32, layout="nchw", dtype="float32", math="tf32", **padded())),
        ("sm_87", convolution(9, 24, 16, layout="nchw", dtype="float16", transposed=True, stride_h=2, **padded())),
    ],
    entries=lambda program: ["contraction_pack", *product_and_reduction(program)],
    resources=lambda constants, workload: mma_launch(constants),
    check=check,
)


def packed_configurations() -> list[Configuration]:
    """Both ways in which pixels meet filters, every order in which threads share an image and filters, transposed too,
    copies of all widths, splits whose sums leave in wide stores and one by one."""
    base = {
        "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "raster": 1, "split_k": 1,
        "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 0, "swizzle": 1, "instruction": 0, "stages": 3,
        "copy": 1,
    }  # fmt: skip
    half = {"dtype": "float16"}
    made = {
        "first": (convolution(9, 10, 10, layout="nchw", groups=2, **half), {"split_k": 2, "warp_m": 32}),
        "last": (convolution(9, 12, 16, groups=2, **half), {"raster": 2}),
        "single columns": (
            convolution(9, 10, 10, layout="nchw", **half),
            {"split_k": 2, "block_m": 16, "block_n": 128, "warp_n": 32, "vector_c": 2, "epilogue_staged": 0},
        ),
        "split, wide": (convolution(10, 10, 10, layout="nchw", **half), {"split_k": 2, "warp_m": 32, "vector_c": 16}),
        "one channel": (
            convolution(9, 1, 16, dtype="float32", math="tf32"),
            {"vector_a": 4, "vector_b": 4, "instruction": 2, "block_k": 16},
        ),
        "filters last": (convolution(9, 12, 16, weights="rsck", **half), {"stages": 2, "copy": 0}),
        "few channels": (convolution(9, 3, 16, **half), {"vector_a": 8, "vector_b": 8}),
        "filters stay": (convolution(9, 16, 16, layout="nchw", **half), {}),
        "tall": (convolution(9, 12, 48, **half), {"block_m": 48, "warp_m": 48, "epilogue_fixed": 1}),
        "narrow": (convolution(9, 12, 16, **half), {"block_n": 16, "warp_n": 8, "epilogue_fixed": 1}),
        "odd": (convolution(9, 12, 15, **half), {"epilogue_fixed": 1, "vector_c": 2}),
        "stream": (
            convolution(9, 10, 10, layout="nchw", groups=2, **half),
            {"stream": 8, "min_blocks": 1, "warp_m": 32},
        ),
        "transposed first": (convolution(9, 10, 10, layout="nchw", transposed=True, **half), {}),
        "transposed last": (convolution(9, 10, 16, transposed=True, **half), {}),
    }
    return [
        Configuration(f"packed {name}", "packed", "sm_87", workload, base | values)
        for name, (workload, values) in made.items()
    ]
