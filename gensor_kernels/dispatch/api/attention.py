"""Attention: the public function. Imports little."""

from __future__ import annotations

from typing import Any

from .current import current_runtime
from .interop import adopting


@adopting
def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool | str = False,
    scale: float | None = None,
    *,
    out: Any = None,
    precision: str | None = None,
) -> Any:
    """softmax(scale q k^T + mask) v in one kernel, as torch.nn.functional.scaled_dot_product_attention.

    `q` is (batch, heads, queries, head), `k` and `v` are (batch, kv_heads, keys, head), where heads is a multiple of
    kv_heads (grouped-query attention: neighbouring heads share one of `k` and `v`). The result has `q`'s shape.
    Kernels serve float16 and bfloat16, with softmax and sums in float32; other types are composed of the array
    library's operations.

    `mask` broadcasts to (batch, heads, queries, keys): booleans say which keys count, numbers are added to the scores.
    `causal=True` (or "lower_right") lets query i see the keys up to i + keys - queries, so that a step of decoding
    sees its whole cache; "upper_left" those up to i, as PyTorch's `is_causal`. `scale` is 1 / sqrt(head) by default.
    A query that sees no key gives zeros.

    Raises ValueError for shapes that do not fit and unknown words, TypeError for arrays that are not floating-point.
    """
    from gensor_kernels.dispatch.functions.attention import ATTENTION, Parameters
    from gensor_kernels.dispatch.plans.calls import call
    from gensor_kernels.operators.attention.attention import causal_code

    causal_code(causal)
    parameters = Parameters(causal, None if scale is None else float(scale))
    return call(current_runtime(), ATTENTION, (q, k, v, mask), parameters, out, (), precision)
