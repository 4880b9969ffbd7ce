"""What kernel families see of a Workload: a product of matrices, or rows that are folded or mapped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """One operand of a matrix product: its dtype, the axis of stride 1 ("s": none), and bytes of one access.

    ``elements`` is how many it has in all, where they are not those of the whole matrix; ``conjugated``: they are
    conjugated as they are read.  ``scaled``: it has scales (1), and zeros (2), one per ``group`` of k (0: all).
    """

    dtype: str
    unit: str
    align: int
    elements: int | None = None
    conjugated: bool = False
    scaled: int = 0
    group: int = 0


@dataclass(frozen=True)
class Prologue:
    """Operations on the first operand of a product (prologue.py), and (dtype, alignment) of each of their vectors."""

    names: tuple[str, ...]
    vectors: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Product:
    """A Workload as the contraction families see it: C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n].

    ``window`` names the operand that is read through a sliding window ("a", "b" or "": none), and ``order`` the
    digits of its k: 1 filter row, filter column, channel; 2 channel, filter row, filter column.  With a ``gate``, the
    epilogue operation that is one, there are two matrices B, and ``biased`` says whether a bias comes first
    (products/gated.py). With ``rows``, those of all batch entries together, entries have different rows of A and C
    (products/ragged.py); m is their mean, rounded up.  With a ``norm``, "layernorm" or "rmsnorm", rows of C are
    normalised (products/normed.py).  With a ``prologue``, elements of the operand read through the window, or of A,
    pass through it (prologue.py).
    """

    batch: int
    m: int
    n: int
    k: int
    a: Side
    b: Side
    c: Side
    window: str = ""
    order: int = 0
    gate: str = ""
    biased: bool = False
    rows: int = 0
    norm: str = ""
    prologue: Prologue | None = None


@dataclass(frozen=True)
class Rows:
    """A Workload as the rows family sees it: ``lines`` x ``columns`` rows of ``k`` elements, each folded by itself.

    ``operation`` names what becomes of a row; ``maps``: an output per element instead of one per row.  ``along`` is
    "k" where rows are contiguous, "n" where rows are columns that lie side by side, "s" where neither has stride 1;
    ``digits`` how many axes k is taken apart into (1 or 3).  ``a`` is x, ``c`` the output.
    """

    operation: str
    maps: bool
    lines: int
    columns: int
    k: int
    along: str
    digits: int
    a: Side
    c: Side
