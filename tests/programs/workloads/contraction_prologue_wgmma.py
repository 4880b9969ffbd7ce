"""Workloads of contraction_prologue_wgmma: operations with vectors and without, both layouts of both operands."""

from collections.abc import Mapping

from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.space import FamilySpace
from tests.programs.workloads.contraction_harness import wgmma_launch

from . import Contract

#: The operations of a layer norm's end, and of an activation.
NORM, CURVE = ("mul", "bias"), ("silu",)


def small(lattice: FamilySpace) -> FamilySpace:
    """Programs whose verification takes seconds."""
    kept = {"block_m": range(193), "block_n": range(129), "split_k": range(3), "stages": range(5)}
    return FamilySpace(lattice.family, lattice.workload, lattice.arch, restrict=kept)


def resources(constants: Mapping[str, int | str], _: Workload) -> tuple[int, int]:
    """Threads and shared bytes by the rules at the top of contraction_prologue_wgmma.cu."""
    return wgmma_launch(constants)


CONTRACT = Contract(
    [
        ("sm_90", prepared(NORM, matmul(1024, 4096, 4096, trans_b=True))),
        ("sm_90", prepared(("relu",), matmul(512, 1024, 2048))),
        ("sm_90", prepared(CURVE, matmul(512, 1000, 1024, dtype="bfloat16", trans_a=True, out="float32"), "float32")),
        ("sm_90", prepared(("scale", "bias", "gelu"), matmul(256, 512, 1024, batch=2, trans_b=True), "float32")),
        ("sm_90", prepared(("mul",), matmul(128, 1001, 1024, trans_b=True, epilogue=("bias", "relu")))),
    ],
    resources=resources,
    fewest_starters=4,
    compiled=4,
    spill_free=True,
    small=small,
)
