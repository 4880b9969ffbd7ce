"""Subscripts with shapes, references by NumPy in float64, and two-operand contractions drawn by hypothesis."""

import math

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, encode

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

#: Two operands: subscripts that share their shapes, and these.
_SHARED = [
    ("ij,jk ij,jk->ik ij,jk->ki", (5, 6), (6, 7)),
    ("ij,kj->ik", (5, 6), (7, 6)),
    ("ji,jk->ik", (6, 5), (6, 7)),
    ("ji,kj->ki", (6, 5), (7, 6)),
    ("ki,jk->ij ki,...k->i... k...,jk", (2, 3), (4, 2)),
    ("ij,j ...j,j ii,i->i", (5, 5), (5,)),
    (",ij", (), (2, 3)),
    ("i,i", (5,), (5,)),
    ("i,j", (2,), (5,)),
    ("i,j->ji", (4,), (5,)),
    ("ijk,jil->kl", (3, 4, 5), (4, 3, 2)),
    ("ij,jh ij,jh->hi", (5, 5), (5, 5)),
    ("ij,ij->ij ij,ij->i ij,ij->j ij,ij-> ij,ij", (4, 5), (4, 5)),
    ("ij,ji-> ij,ji->ij", (4, 5), (5, 4)),
    ("bij,bjk->bik bij,bjk->ikb ...ij,...jk->...ik", (3, 4, 5), (3, 5, 6)),
    ("bij,bkj->bki", (3, 4, 5), (3, 6, 5)),
    ("bij,jk->bik", (3, 4, 5), (5, 6)),
    ("ij,bjk->bik", (4, 5), (3, 5, 6)),
    ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 6)),
    ("...ij,...jk", (2, 1, 4, 5), (3, 5, 6)),
    ("ij...,jk...->ik... ikl,kjl->ij", (4, 5, 3), (5, 6, 3)),
    ("i...j,j...k->ik...", (4, 3, 5), (5, 3, 6)),
    ("bhid,bhjd->bhij", (2, 3, 6, 4), (2, 3, 5, 4)),
    ("bihd,bjhd->bhij", (2, 6, 3, 4), (2, 5, 3, 4)),
    ("bhij,bhjd->bhid", (2, 3, 6, 5), (2, 3, 5, 4)),
    ("bhij,bjhd->bihd", (2, 3, 6, 5), (2, 5, 3, 4)),
    ("bthd,hdm->btm", (2, 6, 3, 4), (3, 4, 8)),
    ("btm,mhd->bthd btm,mhd->bhtd", (2, 6, 8), (8, 3, 4)),
    ("nchw,oc->nohw", (2, 4, 3, 5), (6, 4)),
    ("nhwc,oc->nhwo", (2, 3, 5, 4), (6, 4)),
    ("nhwc,co->nohw", (2, 3, 5, 4), (4, 6)),
    ("nct,kct->nk nct,kct->kn", (2, 3, 4), (5, 3, 4)),
    ("ncvw,vw->ncv", (2, 3, 4, 5), (4, 5)),
    ("ncv,vw->ncw", (2, 3, 4), (4, 5)),
    ("ii,ij->j", (5, 5), (5, 6)),
    ("iij,jk->ik", (4, 4, 5), (5, 6)),
    ("iji,ik->jk", (4, 5, 4), (4, 6)),
    ("ijj,jk->ik", (4, 5, 5), (5, 6)),
    ("ii,jj-> ii,jj->ij", (4, 4), (5, 5)),
    ("iii,ij->ij", (3, 3, 3), (3, 4)),
    ("ij,k->ik", (4, 5), (6,)),
    ("ij,kl->ik ij,kl->", (4, 5), (6, 3)),
    ("ij,i->i", (4, 5), (4,)),
    ("i,ij->i", (4,), (4, 5)),
    ("ijk,j->i", (4, 5, 6), (5,)),
    ("ijk,il->il", (4, 5, 6), (4, 3)),
    ("ijk,jl->il", (4, 5, 6), (5, 3)),
    (",ij->i", (), (4, 5)),
    ("ij,jk->", (4, 5), (5, 6)),
    ("ij,ij->j", (1, 5), (4, 5)),
    ("ij,jk->ik", (4, 1), (5, 6)),
    ("ij,jk->ik", (1, 5), (5, 1)),
    ("ij,ij->ij", (4, 1), (1, 5)),
    ("aij,ajk->aik", (1, 4, 5), (3, 5, 6)),
    ("i,i->i", (1,), (1,)),
    ("i,i", (1,), (6,)),
    ("ijkl,lkm->mij", (2, 3, 4, 5), (5, 4, 6)),
    ("abcd,bdxy->axcy", (2, 3, 4, 5), (3, 5, 2, 3)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3)),
    ("abcd,fced->feba", (2, 3, 4, 5), (2, 4, 3, 5)),
    ("acbd,cedf->abef", (2, 3, 4, 5), (3, 2, 5, 6)),
    ("abcdefg,gfx->xedcba", (2, 1, 2, 3, 2, 4, 5), (5, 4, 3)),
    ("aXbYcZ,XYZ->abc", (2, 3, 2, 4, 2, 2), (3, 4, 2)),
    ("zyx,xwv->zywv zyx,xwv", (2, 3, 4), (4, 3, 2)),
    ("Ab,bC", (3, 4), (4, 5)),
    ("ij,jk->ik", (0, 5), (5, 6)),
    ("ij,jk->ik", (4, 0), (0, 6)),
    ("bij,bjk->bik", (0, 4, 5), (0, 5, 6)),
]
#: (subscripts, shapes).
PAIRS = [("..., ...", (), (2, 3)), *((text, *shapes) for texts, *shapes in _SHARED for text in texts.split())]


def expected(text, operands, result, product=None):
    """The result of a contraction, with the project's bound for sums of that many terms."""
    exact = [each.astype(np.float64) for each in operands]
    if product is None:
        product = np.einsum(text, *exact)
    summed = math.prod(math.prod(each.shape) for each in operands) // max(product.size, 1)
    with np.errstate(all="ignore"):
        total = np.einsum(text, *map(np.abs, exact))
        norm = np.sqrt(np.einsum(text, *(each * each for each in exact)))
    dtype = operands[0].dtype.name
    bound = tolerance_base.accumulation_bound(
        product, tolerance_base.Magnitude(total, norm), max(summed, 1), dtype=dtype, accumulator=ACCUMULATORS[dtype]
    )
    return tolerance_base.expect(product, bound, accumulator=ACCUMULATORS[dtype], output=result)


def agrees(found, text, operands, result=None):
    """The verdict of the project's tolerance on a result."""
    found = np.asarray(found)
    stored = encode("bfloat16", found.astype(np.float64)) if found.dtype == BFLOAT16 else found
    return tolerance_base.check(stored, expected(text, operands, result or found.dtype.name))


def pick(rng, choices):
    """One of `choices`, uniformly."""
    return choices[int(rng.integers(len(choices)))]


@st.composite
def written_calls(draw):
    """(subscripts, operands) with ellipses, axes of one element and mistakes."""
    rng = np.random.default_rng([draw(st.integers(0, 2**64 - 1)), 9])
    sizes = {letter: int(rng.integers(1, 5)) for letter in "abcXY"}

    def operand():
        part = [pick(rng, "abcXY") for _ in range(rng.integers(0, 5))]
        shape = [sizes[letter] if rng.integers(10) else 1 for letter in part]
        if rng.integers(3) == 0:
            where = int(rng.integers(len(part) + 1))
            shape[where:where] = [pick(rng, [1, extent]) for extent in (2, 3)[int(rng.integers(3)) :]]
            part.insert(where, "...")
        return "".join(part), np.asarray(rng.standard_normal(shape))

    parts, arrays = zip(*(operand() for _ in range(pick(rng, [1, 2, 2, 2, 3, 3, 4]))), strict=True)
    text = ",".join(parts)
    if rng.integers(4):
        letters = list(rng.permutation(sorted({*text} - {*".,"})))[: int(rng.integers(6))]
        if "..." in text and rng.integers(10):
            letters.insert(int(rng.integers(len(letters) + 1)), "...")
        text += "->" + "".join(letters)
    return text, arrays
