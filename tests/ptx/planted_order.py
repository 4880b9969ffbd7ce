"""Bugs of memory order planted in the kernels: missing barriers, flags without release or acquire, small scopes.

Results are often right all the same: threads run one at a time here, and any missing order that this run does not need
would pass. They are faults of the memory model, which the executor follows (machine/order.h).
"""

from collections.abc import Iterator

from tests.ptx.planted import Bug

SIMT, MMA = "simt: stream", "mma cp.async: stream"
GIVE, TAKE = "st.release.gpu.global.u64 [%0], %1;", "ld.acquire.gpu.global.u64 %0, [%1];"


#: calls of barriers, and Programs that need them
BARRIERS = [
    ("write_slab(slab, place, own);\n        barrier();", "simt: staged, wide"),
    ("barrier(); // the next tile overwrites the slabs of this tile's outputs", "simt: staged, stream"),
    ("            barrier();\n", "simt: one buffer, split"),
    ("keep_sums(place, outputs[0]);\n    barrier();", "simt: norm, whole rows"),
    ("copy_async_wait<0>();\n        barrier();", "mma cp.async: wide"),
    ("own.store(accumulators[f]);\n        warp_barrier();", "mma cp.async: wide"),
    ("own.store(sums[first + i], i);\n        warp_barrier();", "mma cp.async: wide"),
    ("if (first > 0)\n            warp_barrier();", "mma cp.async: 8-bit floats"),
    ("        }\n        warp_barrier();", "mma cp.async: wide"),
    ("keep_sums(row, column, math.accumulators[0]);\n    barrier();", "mma cp.async: norm, whole rows"),
    ("store_step(b, current + ShapeA::WORDS);\n    barrier();", "phased: phased phases"),
    ("store_step(b, next + ShapeA::WORDS);\n        barrier();", "phased: phased phases"),
    ("store_slab(slab, sums[f]);\n        warp_barrier();", "patch: patch any taps"),
    ("copy_async_wait<0>();\n        barrier();", "patch: patch any taps"),
    ("barrier(); // the next tile's filters overwrite this tile's sums", "patch: patch stream"),
    ("store_shared(arranged + chunk * 16, ones);\n    barrier();", "strip: strip last"),
    ("barrier(); // all warps have read the previous filters", "strip: strip last"),
    ("store_state(scratch + warp, PITCH, state);\n        barrier();", "rows: sum, one row"),
    ("store_sums(slab, math, f);\n        warp_barrier();", "attention cp.async: wide"),
    ("copy_async_wait<0>();\n    barrier();", "attention cp.async: wide"),
    ("store_shared(words + (i * THREADS + thread_index()), word);\n    }\n    barrier();", "window: channels, shared"),
    ("    });\n    barrier();", "window: sliding"),
    ("copy_filters(call, spot);\n    barrier();", "window_groups: channels"),
    ("word_of_line(pieces[i], j));\n    }\n    barrier();", "aligned: turned, 16 bytes"),
    ("half /= 2) {\n            barrier();", "rows: sum, digits"),
    ("if constexpr (MAPS || TWO_PASSES) {\n            barrier();", "rows: columns, two passes"),
    ("barrier(); // x, or the round before, has been read", "gemv: rows"),
    ("write_rows(spot, sums, scratch);\n        barrier();", "gemv: rows"),
    ("the next step writes.\n        barrier();", "gemv: rows"),
]


def _flags() -> Iterator[Bug]:
    for other in ("relaxed.gpu", "release.cta", "volatile", "weak"):
        yield Bug(GIVE, GIVE.replace("release.gpu", other), SIMT)
    for other in ("relaxed.gpu", "acquire.cta", "volatile", "weak"):
        yield Bug(TAKE, TAKE.replace("acquire.gpu", other), SIMT)
    yield Bug(TAKE, "ld.global.nc.u64 %0, [%1];", SIMT)
    yield Bug(GIVE, "fence.acq_rel.cta; st.relaxed.gpu.global.u64 [%0], %1;", MMA)
    yield Bug(TAKE, "ld.relaxed.gpu.global.u64 %0, [%1]; fence.acq_rel.cta;", MMA)
    for program in (SIMT, MMA):
        yield from _without_barrier("Kept::store(params, sum);\n        barrier();", program)
        yield from _without_barrier("stream_mark(params));\n        barrier();", program)


def _read_only() -> Iterator[Bug]:
    load = '"ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"'
    yield Bug(load, load.replace("global", "global.nc"), MMA)
    yield Bug(load, load.replace("global", "global.nc.L2::128B"), SIMT)


def _without_barrier(text: str, program: str) -> Iterator[Bug]:
    """Yield the edit that takes a barrier away: the last call in a text."""
    front, _, end = text.rpartition("warp_barrier();" if "warp_barrier" in text else "barrier();")
    yield Bug(text, f"{front};{end}", program)


def _barriers() -> Iterator[Bug]:
    for text, program in BARRIERS:
        yield from _without_barrier(text, program)
    for program in ("simt: wide, uneven", "mma registers: wide"):
        yield Bug("__syncthreads();", "__syncwarp();", program)
    yield Bug("__syncwarp();", "", "mma cp.async: scalar")
    for text, program in (
        ("barrier_any((traces[0] + traces[1]) + (traces[2] + traces[3]) != 0.0f)", "mma cp.async: floats"),
        ("barrier_any(lost)", "sliced: slices"),
    ):
        yield Bug(text, text.removeprefix("barrier_any"), program)  # each thread chooses its way alone
    text = "        Pipeline::finish(); // the first walk's last copies and this walk's first ones share stages\n"
    yield Bug(text, "", "mma cp.async: floats")


def _copies() -> Iterator[Bug]:
    """Yield edits that wait for copies after the barrier, which then does not publish them."""
    wait = "copy_async_wait<0>();\n        barrier();"
    for program in ("patch: patch any taps", "strip: strip last"):
        yield Bug(wait, "barrier();\n        copy_async_wait<0>();", program)


ORDER_BUGS = [*_flags(), *_read_only(), *_barriers(), *_copies()]
