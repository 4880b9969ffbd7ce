"""Attention: the public function. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.ends import GroupNames, ends_of, integers, lengths_of, pages_of
from gensor_kernels.dispatch.calls.whole import real, whole
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import public

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import Precision
    from gensor_kernels.dispatch.functions.base import Function


@public
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
    sinks: ArrayLike | None = None,
    return_lse: bool = False,
    out: ArrayLike | Sequence[ArrayLike | None] | None = None,
    precision: Precision | None = None,
) -> Any:
    """Compute scaled dot-product attention: `softmax(scale * q @ k.T + mask) @ v`.

    The signature is that of `torch.nn.functional.scaled_dot_product_attention`, without
    `dropout_p`, and with further keywords: the windows, soft caps, packed sequences,
    pages and sinks of FlashAttention. `mask`, `causal` and `scale` stand for `attn_mask`,
    `is_causal` and `scale`; `causal=True` is aligned to the last key, and
    `causal="upper_left"` is `is_causal=True`. Grouped queries need no `enable_gqa`.

    Parameters
    ----------
    q : array, shape (batch, heads, queries, head)
        Queries.
    k, v : array, shape (batch, kv_heads, keys, head), or (pages, kv_heads, page, head)
        Keys and values. heads is a multiple of kv_heads: neighbouring heads share one
        head of `k` and `v` (grouped-query attention [2]_). Heads of `v` may have
        another size than those of `q` and `k` (multi-head latent attention).
    mask : array, optional
        Booleans that say which keys count, or floating-point numbers that are added to
        the scores. It broadcasts to (batch, heads, queries, keys).
    causal : {False, True, "lower_right", "upper_left"}, default False
        True and "lower_right": query i sees the keys up to i + keys - queries, so that
        a step of decoding sees its whole cache. "upper_left": query i sees the keys up
        to i, as PyTorch's `is_causal`.
    scale : float, optional
        Factor of the scores, by default 1 / sqrt(head).
    window : (left, right), optional
        Sliding window: keys that a query sees before and after its position, which
        is i + keys - queries, or i for "upper_left". A value of None or -1 stands for all.
    softcap : float, optional
        Scaled scores s become `softcap * tanh(s / softcap)`, before the mask [3]_.
    offsets, sizes : array or sequence of int, shape (sequences,), optional
        Ends, or numbers of queries, of packed sequences of different lengths, as in
        `grouped_matmul` (FlashAttention's `cu_seqlens_q[1:]`). The
        batch of `q` is 1; `causal` and `window` hold for each sequence by itself.
    key_offsets, key_sizes : array or sequence of int, shape (sequences,), optional
        The same for the keys, by default as for the queries.
    block_table : array or sequence, shape (sequences, pages of a sequence), optional
        Pages of keys, of a power of two [4]_: key j of sequence s is row `j % page`
        of page `block_table[s, j // page]`, and `key_sizes` are required. Entries past a
        sequence's last key may be any numbers. Sequences are batch entries of `q`, or
        those of `offsets` or `sizes`.
    sinks : array of floats, shape (heads,), optional
        Attention sinks [5]_: one more logit per head, neither scaled nor capped, that
        takes part in the denominator of every query's softmax and has no value.
    return_lse : bool, default False
        Also return the logarithms of the denominators, to merge results over parts of
        the keys.
    out : array, shape (batch, heads, queries, head of v), optional
        Array that receives the result; with `return_lse` also a pair (out, lse), of which
        either may be None.
    precision : {None, "ieee", "tf32"}, optional
        Arithmetic of float32 as in `matmul`.

    Returns
    -------
    array, shape (batch, heads, queries, head of v)
        A new array of the promoted dtype, or `out`. A query that sees no key, or is of
        no sequence, gives zeros.
    lse : array of float32, shape (batch, heads, queries)
        With `return_lse`: the natural logarithm of the sum of exp(score), after scale,
        soft cap and mask, over the keys that the query sees, and of exp(sink), as in
        FlashAttention (FlashInfer has logarithms to base 2). -inf for a query that
        sees no key, or the sink.

    Raises
    ------
    ValueError
        If shapes do not fit or a word is unknown; if sequences of different lengths
        have a mask; for offsets, sizes and pages that cannot be, where they are
        checked.
    TypeError
        If an array is not floating-point; or, for a mask, neither that nor of booleans.

    Notes
    -----
    Kernels serve float16 and bfloat16, with softmax and sums in float32 [1]_. For other
    dtypes, page sizes, and soft caps above 256, the operations of the array library are
    composed. Where heads of `v` differ in size, kernels take copies with zeros, but no
    pages. As in `grouped_matmul`, offsets, sizes and tables on a GPU stay there, and are
    not checked.

    NaN and infinities at keys that a query does not see: keys of other sequences, past a
    sequence's end, and in pages that it does not have are never used. `k` has no effect
    where `causal`, `window` or a mask of booleans hides a key; a mask of numbers is added
    to the score, and -inf + NaN and -inf + inf are NaN. `v` of a hidden key is multiplied
    by a weight of 0, and by IEEE 754 0 x NaN and 0 x inf are NaN: always where the mask
    alone hides the key. Where `causal` or `window` hides it, the product is formed if the
    key is in a tile that a kernel computes, so the query's result is NaN or what it is
    without that key. Zeros in `v` at keys that must not count avoid it.

    References
    ----------
    .. [1] T. Dao, "FlashAttention-2", arXiv:2307.08691.
    .. [2] J. Ainslie et al., "GQA", arXiv:2305.13245.
    .. [3] Gemma Team, "Gemma 2", arXiv:2408.00118.
    .. [4] W. Kwon et al., "PagedAttention", arXiv:2309.06180.
    .. [5] G. Xiao et al., "StreamingLLM", arXiv:2309.17453.

    Examples
    --------
    Equal scores, so every query gets the mean of the values that it sees:

    >>> q = np.zeros((1, 1, 2, 8), "float16")
    >>> v = np.stack([np.full(8, 1), np.full(8, 3)])[None, None].astype("float16")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.attention(q, q, v, causal=True)[0, 0]
    array([[1., 1., 1., 1., 1., 1., 1., 1.],
           [2., 2., 2., 2., 2., 2., 2., 2.]], dtype=float16)

    The logarithm of two terms, exp(0) each, and of three with a sink of 0:

    >>> sinks = np.zeros(1, "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     _, two = gensor_kernels.attention(q, q, v, return_lse=True)
    ...     _, three = gensor_kernels.attention(q, q, v, sinks=sinks, return_lse=True)
    >>> np.exp(two).round(3), np.exp(three).round(3)
    (array([[[2., 2.]]], dtype=float32), array([[[3., 3.]]], dtype=float32))
    """
    from gensor_kernels.dispatch.functions.attention import ATTENTION, Parameters, new_logarithms
    from gensor_kernels.operators.attention.forms import causal_code

    causal_code(causal)
    factor = None if scale is None else real("scale", scale)
    ragged, paged = offsets is not None or sizes is not None, block_table is not None
    kinds = ragged, paged, sinks is not None, bool(return_lse)
    parameters = Parameters(causal, factor, _window(window), _softcap(softcap), *kinds)
    runtime, lengths = current_runtime(), (offsets, sizes, key_offsets, key_sizes, block_table)
    out, given = _outputs(out, return_lse)
    function: Function = ATTENTION
    inputs: tuple[Any, ...] = (q, k, v, mask)
    if not all(each is None for each in lengths):
        if mask is not None:
            raise ValueError("a mask is for sequences of one length: leave it out, or offsets, sizes and block_table")
        from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES

        runtime.check_inputs((q, k, v), out, ())
        function, inputs = SEQUENCES, (q, k, v, *_lengths(runtime.device, q, k, *lengths))
    elif mask is None and (sinks is not None or return_lse):
        inputs = inputs[:3]
    if sinks is not None:
        inputs += (sinks,)
    if not return_lse:
        return runtime.serve(function, inputs, parameters, out, (), precision)
    runtime.check_inputs((*inputs, given), out, ())
    lse = new_logarithms(runtime.device, q, (*inputs, out), given)
    result = runtime.serve(function, (*inputs, lse), parameters, out, (), precision)
    if given is None or lse is given:
        return result, lse
    given[...] = lse
    return result, given


def _outputs(out: Any, return_lse: bool) -> tuple[Any, Any]:
    """Return the arrays that receive the result and the logarithms, None for new ones."""
    if not isinstance(out, (tuple, list)):
        return out, None
    if not return_lse or len(out) != 2:
        raise ValueError(f"out is an array, or with return_lse a pair (out, lse), not {len(out)} arrays")
    return out[0], out[1]


def _lengths(
    device: Device, q: Any, k: Any, offsets: Any, sizes: Any, key_offsets: Any, key_sizes: Any, table: Any
) -> list[Any]:
    """Return the ends of the queries, if they are ragged, the ends or numbers of the keys, and the table, if any."""
    if q.ndim != 4 or k.ndim != 4:
        raise ValueError(f"q, k and v have the axes (batch, heads, rows, head), not {tuple(q.shape)}, {tuple(k.shape)}")
    found, ragged = [], offsets is not None or sizes is not None
    if ragged:
        found.append(ends_of(device, GroupNames("sequence", "q"), offsets, sizes, q.shape[2]))
    keys = GroupNames("sequence", "k", "key_offsets", "key_sizes")
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
    table = integers(device, "block_table", table, 2, "numbers of pages, a row per sequence")
    most = table.shape[1] * k.shape[2] if table.ndim == 2 else 0
    lengths = lengths_of(device, "key_sizes", key_sizes, most, "numbers of keys")
    return [*found, lengths, pages_of(device, table, lengths, k.shape[0], k.shape[2])]


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
