"""Triton kernels to compare with, in the manner of Triton's tutorials. Importing this file needs Triton."""

import triton
import triton.language as tl


@triton.jit
def tile_of(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the tile of a block: groups of GROUP tile rows are walked column by column."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP * tiles_n
    first = pid // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + pid % in_group % rows, pid % in_group // rows


@triton.jit
def matmul(
    a, b, c, M, N, K, lda, ldb, ldc,
    TRANS_B: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Multiply row-major (M, K) by (K, N), or by a stored (N, K)."""
    tile_m, tile_n = tile_of(M, N, BLOCK_M, BLOCK_N, GROUP)
    at_m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    at_n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    at_k = tl.arange(0, BLOCK_K)
    from_a = a + at_m[:, None] * lda + at_k[None, :]
    from_b = b + at_n[None, :] * ldb + at_k[:, None] if TRANS_B else b + at_k[:, None] * ldb + at_n[None, :]
    step_b = BLOCK_K if TRANS_B else BLOCK_K * ldb
    sums = tl.zeros((BLOCK_M, BLOCK_N), ACC)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        x = tl.load(from_a, mask=at_k[None, :] < left, other=0.0)
        y = tl.load(from_b, mask=at_k[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums, input_precision=PRECISION, out_dtype=ACC)
        from_a += BLOCK_K
        from_b += step_b
    out_m, out_n = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (out_m[:, None] < M) & (out_n[None, :] < N)
    tl.store(c + out_m[:, None] * ldc + out_n[None, :], sums.to(c.dtype.element_ty), mask=inside)


@triton.jit
def conv2d(
    x, w, y, N, H, W, C, OUT_H, OUT_W, OUT_C,
    R: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Convolve channels-last images as an implicit GEMM; filters are (OUT_C, R, S, C)."""
    pixels = N * OUT_H * OUT_W
    tile_m, tile_n = tile_of(pixels, OUT_C, BLOCK_M, BLOCK_N, GROUP)
    at_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    image, spot = at_m // (OUT_H * OUT_W), at_m % (OUT_H * OUT_W)
    row, column = spot // OUT_W * STRIDE - PAD, spot % OUT_W * STRIDE - PAD
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    steps_c = tl.cdiv(C, BLOCK_K)
    for step in range(0, R * S * steps_c):
        tap, at_c = step // steps_c, step % steps_c * BLOCK_K + tl.arange(0, BLOCK_K)
        h, v = row + tap // S, column + tap % S
        seen = (at_m < pixels) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        place = ((image * H + h) * W + v) * C
        a = tl.load(x + place[:, None] + at_c[None, :], mask=seen[:, None] & (at_c[None, :] < C), other=0.0)
        from_w = w + (at_n[None, :] * (R * S) + tap) * C + at_c[:, None]
        b = tl.load(from_w, mask=(at_n[None, :] < OUT_C) & (at_c[:, None] < C), other=0.0)
        sums = tl.dot(a, b, sums)
    inside = (at_m[:, None] < pixels) & (at_n[None, :] < OUT_C)
    tl.store(y + at_m[:, None] * OUT_C + at_n[None, :], sums.to(y.dtype.element_ty), mask=inside)


@triton.jit
def attention(
    q, k, v, o, QUERIES, KEYS, ldq, ldk, scale,
    HEAD: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attend over (heads, tokens, HEAD), with the online softmax of FlashAttention-2."""
    tile, head = tl.program_id(0), tl.program_id(1)
    at_m, at_n, at_d = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    q += head * QUERIES * ldq
    k += head * KEYS * ldk
    v += head * KEYS * ldk
    rows = tl.load(q + at_m[:, None] * ldq + at_d[None, :], mask=at_m[:, None] < QUERIES, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, HEAD), tl.float32)
    whole = tile * BLOCK_M if CAUSAL else KEYS // BLOCK_N * BLOCK_N
    for first in range(0, whole, BLOCK_N):
        keys = tl.load(k + (first + at_n)[None, :] * ldk + at_d[:, None])
        scores = tl.dot(rows, keys) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(top - higher)
        values = tl.load(v + (first + at_n)[:, None] * ldk + at_d[None, :])
        sums = tl.dot(weights.to(values.dtype), values, sums * kept[:, None])
        total = total * kept + tl.sum(weights, 1)
        top = higher
    end = min(KEYS, (tile + 1) * BLOCK_M) if CAUSAL else KEYS
    for first in range(whole, end, BLOCK_N):
        inside = (first + at_n) < KEYS
        keys = tl.load(k + (first + at_n)[None, :] * ldk + at_d[:, None], mask=inside[None, :], other=0.0)
        seen = inside[None, :] & ((first + at_n)[None, :] <= at_m[:, None]) if CAUSAL else inside[None, :]
        scores = tl.where(seen, tl.dot(rows, keys) * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(top - higher)
        values = tl.load(v + (first + at_n)[:, None] * ldk + at_d[None, :], mask=inside[:, None], other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * kept[:, None])
        total = total * kept + tl.sum(weights, 1)
        top = higher
    o += head * QUERIES * ldq
    tl.store(
        o + at_m[:, None] * ldq + at_d[None, :],
        (sums / total[:, None]).to(o.dtype.element_ty),
        mask=at_m[:, None] < QUERIES,
    )


@triton.jit
def softmax(x, y, COLUMNS, stride, BLOCK: tl.constexpr):
    """Normalise one row per block, held in registers."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < COLUMNS, other=-float("inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * stride + at, (weights / tl.sum(weights, 0)).to(y.dtype.element_ty), mask=at < COLUMNS)


@triton.jit
def layernorm(x, gain, bias, y, COLUMNS, stride, eps, BLOCK: tl.constexpr):
    """Normalise one row per block, held in registers, and scale and shift it."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < COLUMNS
    values = tl.load(x + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, 0) / COLUMNS
    centred = tl.where(inside, values - mean, 0.0)
    scaled = centred * tl.rsqrt(tl.sum(centred * centred, 0) / COLUMNS + eps)
    result = scaled * tl.load(gain + at, mask=inside).to(tl.float32) + tl.load(bias + at, mask=inside).to(tl.float32)
    tl.store(y + row * stride + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def matmul_descriptors(
    a, b, c, M, N, K, lda, ldb, ldc,
    TRANS_B: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Multiply as `matmul` does, with tensor copies (TMA) of tiles."""
    tile_m, tile_n = tile_of(M, N, BLOCK_M, BLOCK_N, GROUP)
    at_m, at_n = tile_m * BLOCK_M, tile_n * BLOCK_N
    from_a = tl.make_tensor_descriptor(a, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    if TRANS_B:
        from_b = tl.make_tensor_descriptor(b, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
    else:
        from_b = tl.make_tensor_descriptor(b, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    to_c = tl.make_tensor_descriptor(c, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    sums = tl.zeros((BLOCK_M, BLOCK_N), ACC)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        x = from_a.load([at_m, k * BLOCK_K])
        y = from_b.load([at_n, k * BLOCK_K]).T if TRANS_B else from_b.load([k * BLOCK_K, at_n])
        sums = tl.dot(x, y, sums, input_precision=PRECISION, out_dtype=ACC)
    to_c.store([at_m, at_n], sums.to(c.dtype.element_ty))


@triton.jit
def decoding(
    q, k, v, sums_out, tops, totals, KEYS, PART, ldk, scale,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attend from one query per head over one part of the keys, as split decoding (FlashDecoding) does."""
    part, head = tl.program_id(0), tl.program_id(1)
    at_m, at_n, at_d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    k += head * KEYS * ldk
    v += head * KEYS * ldk
    rows = tl.load(q + head * HEAD + at_m[:, None] * HEAD + at_d[None, :], mask=at_m[:, None] < 1, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, HEAD), tl.float32)
    end = min(KEYS, (part + 1) * PART)
    for first in range(part * PART, end, BLOCK_N):
        inside = (first + at_n) < end
        keys = tl.load(k + (first + at_n)[None, :] * ldk + at_d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(rows, keys) * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(top - higher)
        values = tl.load(v + (first + at_n)[:, None] * ldk + at_d[None, :], mask=inside[:, None], other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * kept[:, None])
        total = total * kept + tl.sum(weights, 1)
        top = higher
    place = (head * tl.num_programs(0) + part) * BLOCK_M + at_m
    tl.store(sums_out + place[:, None] * HEAD + at_d[None, :], sums, mask=at_m[:, None] < 1)
    tl.store(tops + place, top, mask=at_m < 1)
    tl.store(totals + place, total, mask=at_m < 1)


@triton.jit
def softmax_rows(x, y, ROWS, COLUMNS, stride, BLOCK: tl.constexpr):
    """Normalise rows one after the other, as a persistent block."""
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), ROWS, tl.num_programs(0)):
        values = tl.load(x + row * stride + at, mask=at < COLUMNS, other=-float("inf")).to(tl.float32)
        weights = tl.exp(values - tl.max(values, 0))
        tl.store(y + row * stride + at, (weights / tl.sum(weights, 0)).to(y.dtype.element_ty), mask=at < COLUMNS)


@triton.jit
def layernorm_rows(x, gain, bias, y, ROWS, COLUMNS, stride, eps, BLOCK: tl.constexpr):
    """Normalise rows one after the other, as a persistent block."""
    at = tl.arange(0, BLOCK)
    inside = at < COLUMNS
    scale = tl.load(gain + at, mask=inside).to(tl.float32)
    shift = tl.load(bias + at, mask=inside).to(tl.float32)
    for row in tl.range(tl.program_id(0), ROWS, tl.num_programs(0)):
        values = tl.load(x + row * stride + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(values, 0) / COLUMNS
        centred = tl.where(inside, values - mean, 0.0)
        scaled = centred * tl.rsqrt(tl.sum(centred * centred, 0) / COLUMNS + eps)
        tl.store(y + row * stride + at, (scaled * scale + shift).to(y.dtype.element_ty), mask=inside)
