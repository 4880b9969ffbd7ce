"""Programs of the pointwise family: ranks, broadcasts, strides, types."""

from gensor_kernels.operators.expression.program import parse
from gensor_kernels.operators.pointwise import block_formats
from gensor_kernels.operators.pointwise.views import workload, workload_from_views
from gensor_kernels.operators.types.workload import View, Workload, contiguous
from tests.mutator.engine.configuration import Configuration

SUM = "in_f4_f4__add_f4_0_1__out_2"
FOUR = "in_f4_f4_f2_f4__mul_f4_0_1__cast_f4_2__add_f4_4_5__sub_f4_6_3__cast_f2_7__out_8"
TWO = "in_f4_f4__sub_f4_0_1__exp_f4_2__add_f4_0_1__out_3_4"
WHOLE = "in_i4_i4__floordiv_i4_0_1__mod_i4_0_1__max_i4_2_3__out_4"


def _pointwise(name: str, given: Workload, **values: int) -> Configuration:
    base = {"threads": 64, "vector": 1, "items": 2, "min_blocks": 0}
    return Configuration(name, "pointwise", "sm_87", given, base | values)


def _quantise(name: str, format: str, dtype: str, items: int) -> Configuration:
    values = {"threads": 32, "vector": 1, "items": items, "min_blocks": 0}
    return Configuration(name, "quantise", "sm_87", block_formats.workload(format, 100, dtype), values)


def _apart() -> Workload:
    """A sum with every other element of an array."""
    inputs = [View((6, 40), (80, 2), "float32"), contiguous((40,), "float32")]
    return workload_from_views(parse(SUM), inputs, contiguous((6, 40), "float32"))[0]


def pointwise_configurations() -> list[Configuration]:
    """Programs have one axis and four, an operand of each form, whole numbers, two results; blocks both scales."""
    shapes = [(4, 1, 3, 16), (5, 1, 16), (4, 5, 3, 1), (3, 16)]
    return [
        _pointwise("pointwise", workload(SUM, [(1000,), (1000,)]), vector=4),
        _pointwise("pointwise, four axes", workload(FOUR, shapes), vector=4, items=1),
        _pointwise("pointwise, apart", _apart(), vector=2),
        _pointwise("pointwise, integers", workload(WHOLE, [(99,), (99,)], 4)),
        _pointwise("pointwise, two results", workload(TWO, [(6, 40), (40,)]), vector=4),
        _quantise("quantise, mxfp8", "mxfp8", "float16", items=1),
        _quantise("quantise, nvfp4", "nvfp4", "float32", items=2),
    ]
