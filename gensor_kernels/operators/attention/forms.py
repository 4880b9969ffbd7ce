"""Forms of attention: which queries see which keys, and what happens to scores before the softmax.

Each form is a separate operator, because its kernels are compiled for it: plain attention, attention with a soft cap,
and attention with a sliding window, each without a mask, with a mask of booleans and with a mask that is added; and
attention over sequences of different lengths (sequences.py).  Sizes of the window are run-time numbers: one kernel
serves every window, and no window at all.

Each form with a window, or with sizes of one, also has one with sinks, one that returns the logarithm of the softmax's
denominator (log-sum-exp), and one with both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.shown import shown

CAUSAL = {"none": 0, "lower_right": 1, "upper_left": 2}
#: The size of a window's side without a bound.
UNBOUNDED = 2**31 - 1
WINDOW = ("window_left", "window_right")
#: The soft cap that kernels are verified with: small, so that most scores of random operands are bent.
VERIFIED_SOFTCAP = 1.5
#: The largest soft cap of kernels.  They compute cap tanh(s / cap) as 2 cap sigmoid(2 s / cap) - cap, whose error is a
#: multiple of cap.
MOST_SOFTCAP = 256.0
_MASKS = {"": "", "bool": "_masked", "added": "_biased"}


class Form(NamedTuple):
    """The computation of an operator of attention."""

    #: kind of mask: "" for none, "bool" (True keeps a key) or "added"
    mask: str = ""
    #: whether scores s become softcap tanh(s / softcap), before the mask
    capped: bool = False
    #: whether a Workload has the sizes of a window
    windowed: bool = False
    #: whether sequences have different numbers of queries, stored one after the other
    ragged: bool = False
    #: whether the keys of each sequence are stored in pages
    paged: bool = False
    #: whether each head has one more logit, without a value, in the denominator of its softmax
    sinks: bool = False
    #: whether the logarithm of each row's denominator is a second output
    lse: bool = False

    @property
    def name(self) -> str:
        """Name of the operator."""
        lengths, more = "_ragged" * self.ragged + "_paged" * self.paged, "_sinks" * self.sinks + "_lse" * self.lse
        window = "_windowed" if self.windowed and not lengths + more else ""
        return f"attention{_MASKS[self.mask]}{lengths}{'_capped' if self.capped else window}{more}"

    @property
    def sequences(self) -> bool:
        """Whether sequences have different lengths."""
        return self.ragged or self.paged


PLAIN = Form()
#: (ragged, paged) of forms whose sequences have different lengths.
LENGTHS = ((True, False), (False, True), (True, True))
_WINDOWED = (
    *(Form(mask, capped, True) for mask in _MASKS for capped in (False, True)),
    *(Form("", capped, True, *lengths) for lengths in LENGTHS for capped in (False, True)),
)
#: Every form by the name of its operator; all but plain ones with or without a mask have the sizes of a window.
FORMS = {
    form.name: form
    for form in (
        *(Form(mask) for mask in _MASKS),
        *_WINDOWED,
        *(
            form._replace(sinks=sinks, lse=lse)
            for form in _WINDOWED
            for sinks, lse in ((True, False), (False, True), (True, True))
        ),
    )
}


def causal_code(causal: bool | str) -> int:
    """Return the size ``causal`` for the argument of a public function; ValueError for an unknown word."""
    word = ("lower_right" if causal else "none") if isinstance(causal, (bool, np.bool_)) else causal
    if not isinstance(word, str) or word not in CAUSAL:
        raise ValueError(f"causal is False, True or one of {', '.join(CAUSAL)}, not {shown(causal)}")
    return CAUSAL[word]


def diagonals(sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return (first, end): query i sees key j where i + first <= j < i + end."""
    queries, keys = sizes["queries"], sizes["keys"]
    place = 0 if sizes["causal"] == 2 else keys - queries  # of the key that belongs to query 0
    left, right = (sizes.get(side, UNBOUNDED) for side in WINDOW)
    end = place + 1 if sizes["causal"] else keys if right == UNBOUNDED else place + right + 1
    return (-queries if left == UNBOUNDED else place - left), end


#: A diagonal that bounds nothing, for sequences of fewer queries and keys than this.
FAR = 2**30


def relative_diagonals(sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return (first, end): a query whose own key is p sees key j where p + first <= j < p + end."""
    left, right = (sizes[side] for side in WINDOW)
    end = 1 if sizes["causal"] else FAR if right == UNBOUNDED else right + 1
    return (-FAR if left == UNBOUNDED else -left), end


def capacity(sizes: Mapping[str, int]) -> int:
    """Return the number of keys that a batch entry, or a sequence, can have."""
    return sizes["table"] * sizes["page_size"] if "table" in sizes else sizes["keys"]


def mean_sizes(workload: Workload) -> Mapping[str, int]:
    """Return the sizes with the queries and keys of a batch entry; of sequences, their means.

    The keys of a sequence in pages are as many as its share of the pages holds, or its row of the table.
    """
    form, sizes = FORMS[workload.operator], workload.size
    if not form.sequences:
        return sizes
    count = max(sizes["batch"], 1)
    queries = -(-sizes["queries"] // count) if form.ragged else sizes["queries"]
    if form.paged:
        keys = min(sizes["table"], -(-sizes["pages"] // count)) * sizes["page_size"]
    else:
        keys = -(-sizes["keys"] // count)
    return {**sizes, "queries": queries, "keys": keys}


def seen_pairs(sizes: Mapping[str, int]) -> int:
    """Return the number of (query, key) pairs that diagonal and window allow, without regard to a mask."""
    first, end = diagonals(sizes)
    return _pairs_below(sizes, end) - _pairs_below(sizes, first)


def _pairs_below(sizes: Mapping[str, int], diagonal: int) -> int:
    """Return the number of pairs of query i and a key below i + diagonal."""
    queries, keys = sizes["queries"], sizes["keys"]
    # Query i has clip(diagonal + i, 0, keys) of them: first none, then a growing number, then all.
    none = min(max(1 - diagonal, 0), queries)
    rising = min(max(keys - diagonal, none), queries) - none
    return rising * (2 * (diagonal + none) + rising - 1) // 2 + (queries - none - rising) * keys


def read_keys(workload: Workload) -> int:
    """Return the number of keys of a batch entry (or mean sequence) that are read, at least 1.

    Under a window these are the keys that some query sees, else all.
    """
    size = mean_sizes(workload)
    keys = size["keys"]
    if FORMS[workload.operator].windowed:
        first, end = diagonals(size)
        keys = min(max(size["queries"] - 1 + end, 0), keys) - min(max(first, 0), keys)
    return max(keys, 1)


def window_sizes(sizes: Mapping[str, int], window: tuple[int | None, int | None]) -> dict[str, int]:
    """Return the sizes of a window of (keys to the left, keys to the right) of each query's own key.

    None and -1 are sides without a bound.  Sides that bound nothing are UNBOUNDED: those that reach past all keys, and
    the right one of causal attention.
    """
    reach = sizes["queries"] + sizes["keys"]
    left, right = (UNBOUNDED if x is None or not 0 <= x < reach else x for x in window)
    return dict(zip(WINDOW, (left, UNBOUNDED if sizes["causal"] else right), strict=True))


def check_softcap(softcap: float, scale: float) -> float:
    """Return a soft cap that kernels take; UnsupportedError for others."""
    if not 0.0 < softcap <= MOST_SOFTCAP or not math.isfinite(scale / softcap) or scale / softcap > 1e30:
        given = f"a soft cap of {softcap} and a scale of {scale}"
        raise UnsupportedError(f"attention with {given}: kernels take caps of up to {MOST_SOFTCAP:g}")
    return softcap
