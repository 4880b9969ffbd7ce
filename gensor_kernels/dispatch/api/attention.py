"""Attention: the public function. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.whole import real

from .current import current_runtime
from .interop import adopting

if TYPE_CHECKING:
    from typing import Literal

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import Precision


@adopting
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    causal: bool | Literal["lower_right", "upper_left"] = False,
    scale: float | None = None,
    *,
    out: ArrayLike | None = None,
    precision: Precision | None = None,
) -> Any:
    """Compute scaled dot-product attention: `softmax(scale * q @ k.T + mask) @ v`.

    It is `torch.nn.functional.scaled_dot_product_attention` in one kernel.

    Parameters
    ----------
    q : array, shape (batch, heads, queries, head)
        Queries.
    k, v : array, shape (batch, kv_heads, keys, head)
        Keys and values. heads is a multiple of kv_heads: neighbouring heads share one
        head of `k` and `v` (grouped-query attention [2]_).
    mask : array, optional
        Booleans that say which keys count, or numbers that are added to the scores. It
        broadcasts to (batch, heads, queries, keys).
    causal : {False, True, "lower_right", "upper_left"}, default False
        True and "lower_right": query i sees the keys up to i + keys - queries, so that
        a step of decoding sees its whole cache. "upper_left": query i sees the keys up
        to i, as PyTorch's `is_causal`.
    scale : float, optional
        Factor of the scores, by default 1 / sqrt(head).
    out : array, shape (batch, heads, queries, head), optional
        Array that receives the result.
    precision : {None, "ieee", "tf32"}, optional
        Arithmetic of float32 as in `matmul`.

    Returns
    -------
    array, shape (batch, heads, queries, head)
        A new array of the promoted dtype, or `out`. A query that sees no key gives
        zeros.

    Raises
    ------
    ValueError
        If shapes do not fit, or a word is unknown.
    TypeError
        If an array is not floating-point.

    Notes
    -----
    Kernels serve float16 and bfloat16, with softmax and sums in float32 [1]_. For other
    dtypes, the operations of the array library are composed.

    References
    ----------
    .. [1] T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work
       Partitioning", arXiv:2307.08691.
    .. [2] J. Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models
       from Multi-Head Checkpoints", arXiv:2305.13245.

    Examples
    --------
    Equal scores, so every query gets the mean of the values that it sees:

    >>> q = np.zeros((1, 1, 2, 8), "float16")
    >>> v = np.stack([np.full(8, 1), np.full(8, 3)])[None, None].astype("float16")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.attention(q, q, v, causal=True)[0, 0]
    array([[1., 1., 1., 1., 1., 1., 1., 1.],
           [2., 2., 2., 2., 2., 2., 2., 2.]], dtype=float16)
    """
    from gensor_kernels.dispatch.functions.attention import ATTENTION, Parameters
    from gensor_kernels.operators.attention.attention import causal_code

    causal_code(causal)
    parameters = Parameters(causal, None if scale is None else real("scale", scale))
    return current_runtime().serve(ATTENTION, (q, k, v, mask), parameters, out, (), precision)
