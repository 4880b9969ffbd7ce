"""Workloads of the gemv family: every form, layout, dtype, alignment class and kind of epilogue."""

from gensor_kernels.operators.products.matmul import workload

from . import Contract, usual_tiling


def check(lattice, program, launches, terms):
    """A block to every tile and part."""
    tiling = usual_tiling(lattice, program)
    assert tiling.tiles_m * tiling.tiles_n * tiling.split * lattice.workload.size["batch"] == launches[0].grid


CONTRACT = Contract(
    [
        ("sm_87", workload(1, 4096, 4096, trans_b=True)),
        ("sm_90", workload(1, 4096, 4096, dtype="bfloat16")),
        ("sm_90", workload(8, 4096, 4096, dtype="float16", epilogue=("bias", "gelu"))),
        ("sm_75", workload(1, 1000, 1000, dtype="float32")),
        ("sm_80", workload(3, 1001, 999, dtype="float32", trans_b=True)),
        ("sm_80", workload(1001, 3, 999, dtype="float64", epilogue=("relu",))),
        ("sm_87", workload(1024, 1, 1024, dtype="float16", trans_a=True)),
        ("sm_89", workload(16, 512, 512, dtype="int8", trans_b=True)),
        ("sm_86", workload(2, 511, 512, dtype="int8", epilogue=("bias", "relu"))),
        ("sm_87", workload(4, 512, 512, dtype="complex64", conjugate="b", math="3m")),
        ("sm_80", workload(300, 2, 257, dtype="complex128", trans_a=True, conjugate="a")),
        ("sm_90", workload(1, 1, 100000, dtype="float32")),
        ("sm_120", workload(7, 9, 1000, dtype="float16", batch=3)),
    ],
    check=check,
    fewest_starters=2,
    # One block promised: the compiler may take the registers it wants.
    starters=lambda starters, index: [starters[index % len(starters)].replace(min_blocks=1)],
)
