"""Workloads of the pointwise family: every type, rank, broadcast and alignment class."""

from gensor_kernels.operators.pointwise import block_formats
from gensor_kernels.operators.pointwise.views import workload

from . import Contract

#: arch, program, shapes, alignment
SERVED = [
    ("sm_87", "in_f4_f4__const_f4_3fe0000000000000__mul_f4_0_2__add_f4_1_3__out_4", [(8, 1, 64), (5, 64)], 16),
    ("sm_90", "in_f2_f2_f2__sub_f2_0_1__mul_f2_2_3__sigmoid_f2_4__out_5", [(8, 96, 56), (96, 1), (96, 1)], 16),
    ("sm_75", "in_bf__tanh_bf_0__cast_f4_1__exp_f4_2__out_3", [(1003,)], 2),
    ("sm_80", "in_f8_f8__pow_f8_0_1__out_2", [(100, 1), (30,)], 8),
    ("sm_87", "in_b1_f4_f2__cast_f4_2__where_f4_0_1_3__out_4", [(64, 1, 1), (3, 48), (64, 3, 48)], 16),
    ("sm_89", "in_i4_i4__floordiv_i4_0_1__mod_i4_0_1__mul_i4_2_3__lt_i4_4_1__out_5", [(1000,), (1000,)], 16),
    ("sm_120", "in_u1_i8__cast_i8_0__add_i8_1_2__cast_u1_3__out_4", [(4, 2, 1, 3, 8), (1, 5, 1, 8)], 8),
    ("sm_90", "in_f4_f4_f4_f4_f4_f4_f4_f4__add_f4_0_1__add_f4_2_8__add_f4_3_9__add_f4_4_10__add_f4_5_11__"
              "add_f4_6_12__add_f4_7_13__out_14", [(64,)] * 8, 4),
]  # fmt: skip
#: arch, format, blocks, dtype
ROUNDED = [
    ("sm_87", "mxfp8", 1000, "float32"), ("sm_90", "mxfp8", 77, "float16"), ("sm_75", "mxfp8_e5m2", 1000, "bfloat16"),
    ("sm_120", "mxfp4", 1000, "float16"), ("sm_100", "nvfp4", 1000, "float32"), ("sm_80", "nvfp4", 500, "bfloat16"),
]  # fmt: skip

CONTRACTS = {
    "pointwise": Contract(
        [(arch, workload(program, shapes, alignment)) for arch, program, shapes, alignment in SERVED],
        entries=lambda program: ["pointwise"],
        fewest_starters=4,
        starters=lambda starters, index: starters[index % 3 :: 3],
        compiled=1,
        randoms=2,
        relaxed={"min_blocks": 0},
        conflict_free=lambda program: True,
    ),
    "quantise": Contract(
        [(arch, block_formats.workload(*given)) for arch, *given in ROUNDED],
        entries=lambda program: ["quantise"],
        fewest_starters=4,
        starters=lambda starters, index: starters[index % 3 :: 3],
        compiled=1,
        randoms=2,
        relaxed={"min_blocks": 0},
        conflict_free=lambda program: True,
    ),
}
