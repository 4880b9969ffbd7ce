"""Programs of the rows family: reductions, softmax, norms, scans and element-wise maps."""

from gensor_kernels.families.rows.shape import view
from gensor_kernels.operators.rows.views import workload as rows
from gensor_kernels.operators.types.workload import Workload
from tests.mutator.engine.configuration import Configuration

#: A block of 64 rows, two of each thread.
STAGED = {"threads_k": 1, "threads_m": 32, "staged": 2}


def _rows(name: str, workload: Workload, **values: int) -> Configuration:
    base = {
        "threads_k": 4, "threads_m": 8, "split_k": 1, "vector": 1, "items": 2, "keep": 0, "online": 1,
        "epilogue_fixed": 0, "min_blocks": 0,
    }  # fmt: skip
    staged = {"staged": 0} if view(workload).staged else {}
    return Configuration(name, "rows", "sm_87", workload, base | staged | values)


def rows_configurations() -> list[Configuration]:
    """Rows and columns, one pass and two, every place to keep a row, splits of reductions and of maps."""
    along, across = ((64, 257), (1,)), ((257, 64), (0,))
    return [
        _rows("sum", rows("reduce_sum", *along, "float32")),
        _rows("sum, wide", rows("reduce_sum", (64, 256), (1,), "float16"), vector=8),
        _rows("sum, one row", rows("reduce_sum", *along, "float32"), threads_k=128, threads_m=2),
        _rows("sum, digits", rows("reduce_sum", (4, 6, 8, 10), (0, 2), "float32")),
        _rows("argmax, split", rows("argmax", *along, "float32"), split_k=3),
        _rows("columns", rows("reduce_max", *across, "float32"), vector=4),
        _rows("columns, split", rows("reduce_var", (257, 63), (0,), "float32"), split_k=3),
        _rows("columns, two passes", rows("softmax", (7, 64), (0,), "float32"), vector=4, keep=1, online=0),
        _rows("softmax, shared", rows("softmax", *along, "float32"), threads_k=64, threads_m=2, keep=2, online=0),
        _rows("softmax, split", rows("softmax", *along, "float16"), split_k=3),
        _rows("layernorm", rows("layernorm", (64, 7), (1,), "float16", epilogue="mul_bias"), keep=1, epilogue_fixed=1),
        _rows("staged argmax", rows("argmax", (256, 7), (1,), "float16"), **STAGED, items=4),
        _rows("staged softmax", rows("softmax", (256, 6), (1,), "float32"), **STAGED, vector=2, online=0),
        _rows("scan", rows("cumsum", *along, "float32"), threads_k=64, threads_m=2),
        _rows("scan, split", rows("cumprod", (64, 256), (1,), "float16"), vector=4, split_k=3),
        _rows("scan of columns, split", rows("cumsum", *across, "int32"), vector=2, split_k=3),
        _rows("staged scan", rows("cumsum", (256, 7), (1,), "float32"), **STAGED, items=4),
        _rows("elementwise", rows("elementwise", (64, 255), (), "float32", epilogue="relu"), items=4),
    ]
