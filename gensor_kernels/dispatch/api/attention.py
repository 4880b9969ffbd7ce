"""Attention: the public function. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.whole import real, whole
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import adopting

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    window: Sequence[int | None] | None = None,
    softcap: float | None = None,
    out: ArrayLike | None = None,
    precision: Precision | None = None,
) -> Any:
    """Compute scaled dot-product attention: `softmax(scale * q @ k.T + mask) @ v`.

    It is `torch.nn.functional.scaled_dot_product_attention` in one kernel, with the
    sliding window and the soft cap of FlashAttention.

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
    window : (left, right), optional
        Sliding window: a query sees `left` keys in front of its own key and `right`
        keys behind it. None and -1 stand for all of them, as in FlashAttention's
        `window_size`. The own key of query i is i + keys - queries, with
        `causal="upper_left"` it is i. Causal attention sees no key behind the own one,
        whatever `right` is.
    softcap : float, optional
        Bound of the scores: scaled scores s become `softcap * tanh(s / softcap)`, in
        front of the mask. None and 0 stand for none.
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
        If shapes do not fit, a word is unknown, `window` is no pair, or `softcap` is
        negative or not finite.
    TypeError
        If an array is not floating-point.

    Notes
    -----
    Kernels serve float16 and bfloat16, with softmax and sums in float32 [1]_. For other
    dtypes, and for soft caps above 256, the operations of the array library are
    composed. Keys outside of all windows are not read.

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

    With a window of its own key alone, a query gets the value at its place:

    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.attention(q, q, v, window=(0, 0))[0, 0]
    array([[1., 1., 1., 1., 1., 1., 1., 1.],
           [3., 3., 3., 3., 3., 3., 3., 3.]], dtype=float16)
    """
    from gensor_kernels.dispatch.functions.attention import ATTENTION, Parameters
    from gensor_kernels.operators.attention.forms import causal_code

    causal_code(causal)
    factor = None if scale is None else real("scale", scale)
    parameters = Parameters(causal, factor, _window(window), _softcap(softcap))
    return current_runtime().serve(ATTENTION, (q, k, v, mask), parameters, out, (), precision)


def _window(given: Any) -> tuple[int | None, int | None]:
    """Return (left, right) with None for all keys of a side."""
    if given is None:
        return None, None
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != 2:
        raise ValueError(f"window is a pair (left, right) of numbers of keys, not {shown(given)}")
    sides = (None if each is None else whole("a side of window", each, -1) for each in given)
    left, right = (None if each == -1 else each for each in sides)
    return left, right


def _softcap(given: Any) -> float | None:
    """Return a soft cap, None for none."""
    value = 0.0 if given is None else real("softcap", given)
    if not 0.0 <= value < float("inf"):
        raise ValueError(f"softcap is a number above 0, or 0 or None for no cap, not {shown(given)}")
    return value or None
