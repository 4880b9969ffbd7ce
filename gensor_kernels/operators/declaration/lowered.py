"""Views of a Workload for kernel families: a matrix product, or rows that are reduced or mapped."""

from __future__ import annotations

from dataclasses import dataclass

#: ``Side.scaled`` where both operands have a scale per block (products/block_scaled.py).
BLOCKS = 3


@dataclass(frozen=True)
class Side:
    """One operand of a matrix product.

    Attributes
    ----------
    dtype : str
        Element type.
    unit : str
        Axis of stride 1, "s" for none.
    align : int
        Bytes of one vector access.
    elements : int, optional
        Number of elements, if it is not the size of the whole matrix.
    conjugated : bool
        Whether elements are conjugated as they are read.
    scaled : int
        1 with scales, 2 with scales and zeros, BLOCKS with scales of both operands per block, 0 without.
    group : int
        Elements of k that share a scale; 0 for all of k.  With BLOCKS, columns too.
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
    """Operations on the first operand of a product (prologue.py), and (dtype, alignment) of each vector operand."""

    names: tuple[str, ...]
    vectors: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Product:
    """A Workload for the contraction families: C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n].

    Attributes
    ----------
    batch, m, n, k : int
        Extents.
    a, b, c : Side
        Operands and output.
    window : str
        Operand that is read through a sliding window: "a", "b" or "" for none.
    order : int
        Order of k's digits under a window: 1 filter row, filter column, channel; 2 channel, filter row, filter column.
        3 and 4 are the same orders of a transposed convolution.
    gate : str
        Epilogue operation on the first of two matrices B (products/gated.py).
    biased : bool
        Whether a bias precedes the gate.
    rows : int
        Rows of all batch entries together, if entries have different numbers of rows (products/ragged.py); m is then
        their mean, rounded up.
    norm : str
        "layernorm" or "rmsnorm" of the rows of C (products/normed.py).
    prologue : Prologue, optional
        Operations on the elements of A, or of the operand that is read through the window (prologue.py).
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
    """A Workload for the rows family: ``lines`` x ``columns`` rows of ``k`` elements, each reduced or mapped by itself.

    Attributes
    ----------
    operation : str
        Reduction or map.
    maps : bool
        Whether there is one output per element instead of one per row.
    lines, columns, k : int
        Extents.
    along : str
        "k" for contiguous rows, "n" for rows that are adjacent columns, "s" where neither axis has stride 1.
    digits : int
        Number of axes that make up k: 1 or 3.
    a, c : Side
        Input x and output.
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
