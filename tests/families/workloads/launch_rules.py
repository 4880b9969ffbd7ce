"""Threads and shared bytes of contraction kernels, by the rules at the top of their `.cu` files."""

from collections.abc import Mapping


def up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def simt_launch(c: Mapping[str, int | str]) -> tuple[int, int]:
    """(threads, shared bytes) of contraction_simt, as the top of contraction_simt.cu says."""
    v = {name: value for name, value in c.items() if isinstance(value, int)}
    word = {"float": 4, "double": 8, "i32": 4, "c64": 8, "c128": 16}[str(c["ACC_TYPE"])]
    threads = v["BLOCK_M"] // v["THREAD_M"] * (v["BLOCK_N"] // v["THREAD_N"])
    rows = [v[f"BLOCK_{axis}"] + 4 * (v["PAD"] and not v[f"{name}_LAYOUT"]) for name, axis in ("AM", "BN")]
    planes, tile_word = (3, word // 2) if v["FORM"] == 3 else (1, word)
    shared = v["STAGES"] * planes * sum(up(v["BLOCK_K"] * row * tile_word, 128) for row in rows)
    if v["EPILOGUE_STAGED"] and not v["SPLIT"]:
        room = (8 if v["THREAD_M"] * v["THREAD_N"] * word >= 256 else 16) // (2 if word > 8 else 1)
        store = next(r for r in (4, 2, 1) if r == 1 or (v["THREAD_M"] % r == 0 and r * v["THREAD_N"] <= room))
        shared = max(shared, 2 * up(store * v["BLOCK_M"] // v["THREAD_M"] * v["BLOCK_N"] * word, 128))
    return threads, shared


def mma_launch(c: Mapping[str, int | str]) -> tuple[int, int]:
    """(threads, shared bytes) of contraction_mma, as the top of contraction_mma.cu says."""
    v = {name: value for name, value in c.items() if isinstance(value, int)}
    bits = {"half_t": 16, "bfloat16_t": 16, "float": 32, "double": 64, "c128": 128, "i8": 8, "e4m3_t": 8, "e5m2_t": 8}
    bits["u4x2_t"] = 4
    held = {x: bits[str(c[f"{x}_STORED"] if v["ASYNC"] and f"{x}_STORED" in c else c["IN_TYPE"])] for x in "AB"}
    warps = v["BLOCK_M"] // v["WARP_M"] * (v["BLOCK_N"] // v["WARP_N"])
    shared = v["STAGES"] * (v["BLOCK_M"] * held["A"] + v["BLOCK_N"] * held["B"]) * v["BLOCK_K"] // 8
    shared += 32 * v.get("STREAM", 0)
    word = {"double": 8, "c128": 16}.get(str(c["ACC_TYPE"]), 4)
    return 32 * warps, max(shared, v["EPILOGUE_STAGED"] * warps * 16 * v["WARP_N"] * word)


def wgmma_launch(c: Mapping[str, int | str]) -> tuple[int, int]:
    """(threads, shared bytes) of contraction_wgmma, as the top of contraction_wgmma.cu says."""
    v = {name: value for name, value in c.items() if isinstance(value, int)}
    walks = v.get("PERSISTENT", 0)
    of_c = v["BLOCK_N"] // (2 if v.get("GATE") else 1)
    columns = next(n for n in (64, 48, 32, 16) if of_c % n == 0) if walks else of_c // (2 if of_c > 128 else 1)
    slabs = v["CONSUMERS"] * (256 * columns * v["EPILOGUE_STAGED"] + 16384 * v.get("STORE_COPIES", 0))
    ring = v["STAGES"] * (v["BLOCK_M"] + v["BLOCK_N"]) * v["BLOCK_K"] * wgmma_element(c)
    return 128 * (v["CONSUMERS"] + 1), 1024 + (ring + slabs if walks else max(ring, slabs))


def wgmma_element(c: Mapping[str, int | str]) -> int:
    """Bytes of an element of A or B in memory."""
    return {"float": 4, "i8": 1, "e4m3_t": 1, "e5m2_t": 1}.get(str(c.get("A_STORED", c["IN_TYPE"])), 2)
