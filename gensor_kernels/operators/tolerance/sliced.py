"""Error bound of a float64 product of 8-bit slices (math "ozaki"): the bound of sums in double holds.

Let u = 2^-53, S = sum over k of |a b|, and let 2^e and 2^f be the powers of two above the largest elements of an
output's row of A and column of B.  slices.cuh writes an element as 2^e times the sum of SLICES digits q_s 2^(1 - 7 s),
|q_s| <= 64, and cuts bits below 2^-62: at most 2 * 2^-62 of a term, in units of 2^(e + f), the unit of this
file.  Pairs of slices with s + t > SLICES + 1 = 10 are left out: 8 of at most 2^-63 each where s + t = 11, 7 of at most
2^-70 where it is 12, and so on, 1.01 * 2^-60 in all.  Both together: 1.52 * 2^-60 of a term, for any data.

Pairs of one s + t = d are summed exactly: k (d - 1) 64^2 < 2^31.  Their sums are added in double from d = 10 to d = 2;
the partial sum at d is at most 1.02 k (d - 1) 2^(14 - 7 d), so that the roundings up to d = 3 are at most 2.06 * 2^-7
k u together, and the last one is u |c|.  Powers of two are exact, but where the result is subnormal.  So the error is
at most 3.58 * 2^-60 k 2^(e + f) + u |c| and as many smallest subnormals as there are roundings there.

That is a bound by the norms of the row and the column.  The bound by the terms themselves follows where S is large
enough next to 2^(e + f): the first pass sums the products L of the leading 7 bits of all |a| and |b|, cut, so that S >=
2^-14 L 2^(e + f).  Where L is LEAST_LEADING or more, the error is at most (0.9 k + 1) u S, the bound of base.py
for any data; where it is not, and neither the row nor the column is all zeros, the block sums by multiply-adds of
doubles.  So the bound holds for all data, and nothing is added to it here.  For data without order the same steps are
independent errors: cutting and leaving out lose 2^-6 of the rounding errors of sums in double.

K. Ozaki, T. Ogita, S. Oishi and S. M. Rump, Error-free transformations of matrix multiplication by using fast routines
of matrix multiplication and its applications, Numer. Algorithms 59, 2012; H. Ootomo, K. Ozaki and R. Yokota, DGEMM on
integer matrix multiplication unit, Int. J. High Perform. Comput. Appl. 38, 2024.
"""

from __future__ import annotations

#: Digits of an element, and bits of one.
SLICES, SLICE_BITS = 9, 7
#: Sums of products of leading bits from which on slices suffice (sliced_math.cuh).
LEAST_LEADING = 512


def loss(leading: int) -> float:
    """Return the error of slices in units of u k S, without the last rounding, for products of leading bits that sum to
    ``leading``."""
    return 3.58 * 2.0**-60 * 2.0**14 / leading / 2.0**-53
