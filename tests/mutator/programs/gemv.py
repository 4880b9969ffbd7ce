"""Programs of the gemv family."""

from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.types.workload import Workload
from tests.mutator.engine.configuration import Configuration


def gemv_configurations() -> list[Configuration]:
    """Both layouts and operands, both ways to read x; sums that meet in one warp, in several, in rounds, and across
    blocks."""
    odd, turned = matmul(3, 255, 255, dtype="float32", trans_b=True), matmul(255, 3, 255, dtype="float32")
    wide = matmul(3, 256, 256, dtype="float16", trans_b=True)
    across, half = matmul(5, 255, 255, dtype="float32"), matmul(5, 256, 256, dtype="float16")
    many = matmul(16, 256, 256, dtype="float32")
    integers = matmul(3, 64, 64, dtype="int8", trans_b=True, epilogue="bias_relu_scale")
    columns, after = {"rows": 1, "form": 1}, prepared(("bias", "gelu"), wide)
    return [
        _gemv("rows", odd),
        _gemv("rows, direct", odd, x_shared=0),
        _gemv("rows, wide", wide, "sm_90", vector=8, small=3, threads_k=64, threads_l=1, early=1),
        _gemv("rows, split", wide, vector=8, items=1, split_k=3),
        _gemv("rows of a", turned, form=2),
        _gemv("rows of a, direct, one by one", turned, form=2, x_shared=0, items=1),
        _gemv("columns", across, **columns),
        _gemv("columns, split", across, **columns, split_k=3),
        _gemv("columns, wide, split", half, **columns, vector=8, threads_k=8, threads_l=4, split_k=3),
        _gemv("columns, rounds", many, **columns, vector=4, threads_k=16, threads_l=16, small=16, items=1),
        _gemv("integers", integers, vector=4),
        _gemv("compiled epilogue", integers, vector=4, epilogue_fixed=1),
        _gemv("prologue", prepared(("bias", "mul", "silu"), odd)),
        _gemv("prologue, wide", after, "sm_90", vector=8, small=3, threads_k=64, threads_l=1, early=1),
    ]


def _gemv(name: str, workload: Workload, arch: str = "sm_87", **values: int) -> Configuration:
    base = {
        "form": 0, "threads_k": 4, "threads_l": 8, "small": 2, "split_k": 1, "vector": 1, "items": 2, "rows": 2,
        "x_shared": 1, "epilogue_fixed": 0, "min_blocks": 0, "early": 0,
    }  # fmt: skip
    return Configuration(name, "gemv", arch, workload, base | values)
