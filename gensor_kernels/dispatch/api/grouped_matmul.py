"""Groups of different rows: the public function. Imports little."""

from __future__ import annotations

from typing import Any

from gensor_kernels.dispatch.calls.arguments import named_dtype, unfused

from .current import current_runtime
from .interop import adopting


@adopting
def grouped_matmul(
    x: Any,
    w: Any,
    offsets: Any = None,
    *,
    sizes: Any = None,
    bias: Any = None,
    activation: str | None = None,
    epilogue: Any = None,
    out: Any = None,
    dtype: Any = None,
    precision: str | None = None,
) -> Any:
    """Products of groups with different rows, in one kernel: `activation(x[i] @ w[g] + bias)` for row i of group g.

    `x` is (m, k), the rows of one group after those of another, as a mixture of experts sorts its tokens; `w` is
    (groups, k, n), any strides (`w.transpose(0, 2, 1)` of weights kept as (groups, n, k)); the result is (m, n). Group
    g has the rows from `offsets[g - 1]` (from 0) to `offsets[g]`: `offsets` (groups,) are those of PyTorch's
    `torch._grouped_mm`. Or `sizes` (groups,) are the rows of each. As arrays of the device (int32 spares a conversion)
    they stay there: nothing waits for them, and they may change from call to call; a sequence or, on a GPU, a NumPy
    array is checked and copied to it. Groups may be empty. The product of rows behind the last offset is 0.

    On a GPU, offsets and sizes that lie there are not checked. An offset, as an int32, counts as the nearest number
    from 0 to m, so nothing is read or written outside the arrays; but where offsets descend, or sizes are negative, a
    row of the result may hold its product with any of the matrices, 0, or what was in that memory before. Inside
    `emulated` all offsets and sizes are checked.

    `bias`, `activation` and `epilogue` are those of `matmul` but for gates and norms; operands broadcast to the result.
    `dtype` may be wider than the operands', as in `matmul`.

    Raises ValueError for shapes that do not fit and, where they are checked, for offsets that descend or lie beyond m,
    negative sizes and sizes of more than m rows; TypeError for operands that are no arrays of this device,
    UnsupportedError for a gate or a norm.
    """
    import numpy as np

    from gensor_kernels.dispatch.functions.grouped import RAGGED
    from gensor_kernels.dispatch.plans.calls import call

    runtime = current_runtime()
    if (offsets is None) == (sizes is None):
        raise ValueError("grouped_matmul takes offsets or sizes")
    steps = unfused("grouped_matmul", 1, bias, None, activation, epilogue)
    runtime.check(x, w, out, steps, precision)
    given = sizes if offsets is None else offsets
    if runtime.device.is_array(given) and not runtime.device.emulated:
        ends = given if sizes is None else runtime.device.xp.cumsum(given, dtype=np.int32)
    else:
        ends = runtime.device.xp.asarray(_checked(np.asarray(given), sizes is not None, x.shape[0]))
    return call(runtime, RAGGED, (x, w, ends), None if dtype is None else named_dtype(dtype), out, steps, precision)


def _checked(given: Any, are_sizes: bool, rows: int) -> Any:
    """Ends as int32; ValueError where they say what cannot be."""
    import numpy as np

    if given.shape == (0,):  # an empty list has no integers, but no other numbers either
        given = given.astype(np.int32)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError(f"offsets and sizes are one integer per group, not {given.dtype} of the shape {given.shape}")
    ends = np.cumsum(given, dtype=np.int64) if are_sizes else given.astype(np.int64)
    if given.size and (np.diff(ends, prepend=0).min() < 0 or ends[-1] > rows):
        raise ValueError(
            f"the ends of groups are {ends.tolist()[:8]}: expected to ascend up to the {rows} rows at most"
        )
    return ends.astype(np.int32)
