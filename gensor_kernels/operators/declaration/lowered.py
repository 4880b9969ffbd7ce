"""Views of a Workload for kernel families: a matrix product, or rows that are reduced or mapped."""

from __future__ import annotations

from dataclasses import dataclass

#: ``Side.scaled`` where both operands have a scale per block (products/block_scaled.py).
BLOCKS = 3


@dataclass(frozen=True)
class Side:
    """One operand of a matrix product."""

    #: element type
    dtype: str
    #: axis of stride 1, "s" for none
    unit: str
    #: bytes of one vector access
    align: int
    #: number of elements, if it is not the size of the whole matrix
    elements: int | None = None
    #: whether elements are conjugated as they are read
    conjugated: bool = False
    #: 1 with scales, 2 with scales and zeros, BLOCKS with scales of both operands per block, 0 without
    scaled: int = 0
    #: elements of k that share a scale; 0 for all of k.  With BLOCKS, columns too.
    group: int = 0


@dataclass(frozen=True)
class Prologue:
    """Operations on the first operand of a product (prologue.py), and (dtype, alignment) of each vector operand."""

    names: tuple[str, ...]
    vectors: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Product:
    """A Workload for the contraction families: C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n]."""

    #: extents
    batch: int
    m: int
    n: int
    k: int
    #: operands and output
    a: Side
    b: Side
    c: Side
    #: operand that is read through a sliding window: "a", "b" or "" for none
    window: str = ""
    #: order of k's digits under a window: 1 filter row, filter column, channel; 2 channel, filter row, filter column. 3
    #: and 4 are the same orders of a transposed convolution.
    order: int = 0
    #: epilogue operation on the first of two matrices B (products/gated.py)
    gate: str = ""
    #: whether a bias precedes the gate
    biased: bool = False
    #: rows of all batch entries together, if entries have different numbers of rows (products/ragged.py); m is then
    #: their mean, rounded up
    rows: int = 0
    #: "layernorm" or "rmsnorm" of the rows of C (products/normed.py)
    norm: str = ""
    #: operations on the elements of A, or of the operand that is read through the window (prologue.py)
    prologue: Prologue | None = None


@dataclass(frozen=True)
class Rows:
    """A Workload for the rows family: ``lines`` x ``columns`` rows of ``k`` elements, each reduced or mapped alone."""

    #: reduction or map
    operation: str
    #: whether there is one output per element instead of one per row
    maps: bool
    #: extents
    lines: int
    columns: int
    k: int
    #: "k" for contiguous rows, "n" for rows that are adjacent columns, "s" where neither axis has stride 1
    along: str
    #: number of axes that make up k: 1 or 3
    digits: int
    #: input x and output
    a: Side
    c: Side
