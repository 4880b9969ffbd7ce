"""Workloads of contraction_simt: every kind of operand, copy and layout."""

from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.windows.conv import workload as convolution
from tests.families.workloads.launch_rules import simt_launch

from . import Contract, scattered

SQUARE = {"n": 2, "h": 28, "w": 28, "c": 64, "k_out": 64, "r": 3, "s": 3}
CONTRACT = Contract(
    [
        ("sm_89", workload(4096, 4096, 4096, dtype="float32")),
        ("sm_75", workload(129, 127, 65, dtype="float32", trans_a=True, trans_b=True)),
        ("sm_80", workload(300, 300, 300, dtype="float64", epilogue=("relu",))),
        ("sm_90", workload(100, 200, 304, dtype="float16", trans_b=True)),
        ("sm_86", workload(100, 200, 304, dtype="int8")),
        ("sm_87", workload(256, 256, 256, dtype="complex64", math="3m", trans_a=True, conjugate="a")),
        ("sm_80", workload(129, 127, 65, dtype="complex128", epilogue=("scale", "add"))),
        ("sm_87", convolution(**SQUARE, stride_h=2, stride_w=2, pad_top=1, pad_left=1)),
        ("sm_90", convolution(**SQUARE, layout="nchw", dtype="float64", transposed=True)),
        ("sm_87", scattered(workload(64, 64, 64, dtype="float32"))),
        ("sm_87", workload(254, 254, 254, dtype="float32", epilogue="mask_gelu_tanh")),
        ("sm_87", workload(256, 256, 256, dtype="bfloat16", trans_b=True, epilogue="mul_relu6")),
        ("sm_87", workload(255, 256, 255, dtype="int8", out="int8")),
        ("sm_87", workload(95, 79, 63, dtype="complex64", math="3m", trans_a=True, trans_b=True, conjugate="b")),
        ("sm_90", workload(95, 79, 63, dtype="complex128", trans_a=True, conjugate="ab")),
    ],
    resources=lambda constants, workload: simt_launch(constants),
    fewest_starters=4,
    executed=False,
)
