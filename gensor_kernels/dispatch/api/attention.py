"""Attention: the public function. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.whole import real, whole
from gensor_kernels.shown import shown

from .current import current_runtime
from .ends import Grouped, bounded_integers, ends_of
from .interop import adopting

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.devices.device import Device
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
    offsets: ArrayLike | Sequence[int] | None = None,
    sizes: ArrayLike | Sequence[int] | None = None,
    key_offsets: ArrayLike | Sequence[int] | None = None,
    key_sizes: ArrayLike | Sequence[int] | None = None,
    block_table: ArrayLike | Sequence[Sequence[int]] | None = None,
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
    k, v : array, shape (batch, kv_heads, keys, head) or (pages, kv_heads, page_size, head)
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
    offsets : array or sequence of int, shape (sequences,), optional
        Ends of sequences of different lengths, which lie one after the other: sequence
        s has the queries from `offsets[s - 1]` (from 0 for the first one) to
        `offsets[s]`, as in `grouped_matmul`: FlashAttention's `cu_seqlens_q[1:]`. The
        batch of `q` is 1, and queries is the number of all of them.
    sizes : array or sequence of int, shape (sequences,), optional
        Numbers of queries, in place of `offsets`. Sequences may be empty.
    key_offsets, key_sizes : array or sequence of int, shape (sequences,), optional
        The same for the keys, by default as for the queries. With a `block_table`,
        `key_sizes` are required: the numbers of keys in the cache.
    block_table : array or sequence, shape (sequences, pages of a sequence), optional
        Pages of a cache: `k` and `v` have the shape (pages, kv_heads, page_size, head),
        and key j of sequence s is row `j % page_size` of page
        `block_table[s, j // page_size]`. Sequences are batch entries of `q`, or those of
        `offsets` or `sizes`.
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
        negative or not finite; if a mask stands beside sequences of different lengths;
        and, where they are checked, for offsets that descend or exceed the rows, for
        negative sizes, and for more keys than pages hold.
    TypeError
        If an array is not floating-point.

    Notes
    -----
    Kernels serve float16 and bfloat16, with softmax and sums in float32 [1]_. For other
    dtypes, for soft caps above 256, and for pages of other sizes than powers of two, the
    operations of the array library are composed. Keys outside of all windows are not
    read.

    Offsets, sizes and a block table that lie on a GPU stay there: no call waits for
    them, they may change from call to call, and they are not checked. int32 spares a
    conversion. Whatever they hold, nothing outside of the arrays is read or written;
    a page that does not exist is one of zeros. Queries behind the last offset give
    zeros. A sequence or, on a GPU, a NumPy array is checked and copied to the device.
    For caches of FlashAttention, whose axes are (pages, page_size, kv_heads, head),
    `k.transpose(0, 2, 1, 3)` is a view; so is `q.transpose(1, 0, 2)[None]` for packed
    queries of the axes (queries, heads, head).

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

    Sequences of one and of two queries, over a cache of three pages of two keys:

    >>> tokens = np.zeros((1, 1, 3, 8), "float16")
    >>> pages = np.arange(6).repeat(8).reshape(3, 1, 2, 8).astype("float16")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.attention(
    ...         tokens, pages, pages, causal=True,
    ...         sizes=[1, 2], key_sizes=[2, 3], block_table=[[2, 0], [1, 0]],
    ...     )[0, 0, :, 0]
    array([4.5, 2.5, 1.667], dtype=float16)
    """
    from gensor_kernels.dispatch.functions.attention import ATTENTION, Parameters
    from gensor_kernels.operators.attention.forms import causal_code

    causal_code(causal)
    factor = None if scale is None else real("scale", scale)
    ragged, paged = offsets is not None or sizes is not None, block_table is not None
    parameters = Parameters(causal, factor, _window(window), _softcap(softcap), ragged, paged)
    runtime, lengths = current_runtime(), (offsets, sizes, key_offsets, key_sizes, block_table)
    if all(each is None for each in lengths):
        return runtime.serve(ATTENTION, (q, k, v, mask), parameters, out, (), precision)
    if mask is not None:
        raise ValueError("a mask is for sequences of one length: leave it out, or offsets, sizes and block_table")
    from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES

    runtime.check_inputs((q, k, v), out, ())
    found = _lengths(runtime.device, q, k, *lengths)
    return runtime.serve(SEQUENCES, (q, k, v, *found), parameters, out, (), precision)


def _lengths(
    device: Device, q: Any, k: Any, offsets: Any, sizes: Any, key_offsets: Any, key_sizes: Any, table: Any
) -> list[Any]:
    """Return the ends of the queries, if they are ragged, the ends or numbers of the keys, and the table, if any."""
    if q.ndim != 4 or k.ndim != 4:
        raise ValueError(f"q, k and v have the axes (batch, heads, rows, head), not {tuple(q.shape)}, {tuple(k.shape)}")
    found, ragged = [], offsets is not None or sizes is not None
    if ragged:
        found.append(ends_of(device, Grouped("sequence", "q"), offsets, sizes, q.shape[2]))
    keys = Grouped("sequence", "k", "key_offsets", "key_sizes")
    if table is None:
        if not ragged:
            raise ValueError("key_offsets and key_sizes go with offsets or sizes, or with a block_table")
        if key_offsets is None and key_sizes is None:
            key_offsets, key_sizes = offsets, sizes
        return [*found, ends_of(device, keys, key_offsets, key_sizes, k.shape[2])]
    if key_sizes is None or key_offsets is not None:
        raise ValueError(
            "with a block_table, key_sizes are the numbers of keys in the cache; key_offsets are for packed keys"
        )
    table = bounded_integers(device, "block_table", table, 2, None, "numbers of pages, a row per sequence")
    most = table.shape[1] * k.shape[2] if table.ndim == 2 else 0
    return [*found, bounded_integers(device, "key_sizes", key_sizes, 1, most, "numbers of keys"), table]


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
