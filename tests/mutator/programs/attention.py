"""Programs of the attention families."""

from dataclasses import replace

from gensor_kernels.families.attention.mask import is_copied
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.attention.attention import workload as attention
from gensor_kernels.operators.types.workload import Workload
from tests.mutator.engine.configuration import Configuration


def attention_configurations(copies: str) -> list[Configuration]:
    """Every mask, aligned heads and single elements, splits; copies by cp.async or through registers (sm_75)."""
    old = copies == "registers"

    def make(name: str, workload: Workload, **values: int) -> Configuration:
        vectors = {f"vector_{mine}": workload.align[operand] for mine, operand in zip("kvc", "bdc", strict=True)}
        base = {
            "block_q": 32, "block_k": 16, "head_tile": 32, "split_k": 1, "stages": 1 if old else 2, "swizzle": 1,
            "copy": int(not old), "warp_q": 16, "instruction": int(old), "q_registers": 1, "epilogue_staged": 1,
            "epilogue_fixed": 0, "min_blocks": 1,
        }  # fmt: skip
        arch = "sm_75" if old else "sm_87"
        return Configuration(name, f"attention {copies}", arch, workload, base | vectors | values)

    wide, keep = attention(99, head=32), attention(99, 100, head=32, mask="bool")
    # One element per access, but of K and V with cp.async, which takes 4 bytes at least.
    least = 2 if old else 4
    narrow = replace(attention(99, head=31 if old else 30), alignment={"a": 2, "b": least, "c": 2, "d": least})
    entries = sequences.workload(3, 9, 90, ragged=False, page_size=8, head=31 if old else 30, causal=True)
    bias = attention(99, 97, head=32, mask="float16", epilogue="scale_add")
    return [
        make("wide", wide),
        make("wide, uneven", wide, head_tile=48, block_q=48, block_k=32, q_registers=0),
        make("narrow", narrow, epilogue_staged=0),
        make("split", wide, split_k=3),
        make("narrow, split", narrow, split_k=3, epilogue_staged=0, stages=1),
        make("boolean mask", keep, warp_q=32),
        make("added mask", bias, epilogue_fixed=1, stages=1),
        make("window", attention(99, head=32, causal=True, window=(40, None)), split_k=2),
        make("ragged", sequences.workload(3, 99, 90, head=32, causal=True), split_k=2, stages=1),
        make("pages", sequences.workload(3, 99, 90, page_size=8, head=32, window=(40, 3)), stages=1),
        make("pages of entries", entries, split_k=2, q_registers=0, epilogue_staged=0),
        make("window, soft cap", attention(99, 97, head=32, mask="bool", window=(40, 3), softcap=True), stages=1),
        make("sinks", attention(99, 97, head=32, mask="float16", softcap=True, sinks="bfloat16", lse=True), stages=1),
        make("sinks, split", attention(99, head=32, causal=True, sinks="float32", lse=True), split_k=3),
    ]


def attention_wgmma_configurations() -> list[Configuration]:
    """Every mask, read by threads and by tensor copies, one to three warpgroups, heads of whole boxes and of part of
    one, splits, both store routes, and sequences of different lengths."""

    def make(name: str, workload: Workload, **values: int) -> Configuration:
        base = {
            "block_q": 64, "block_k": 16, "head_tile": 64, "split_k": 1, "stages": 3, "epilogue_staged": 1,
            "epilogue_fixed": 0, "vector_c": workload.align["c"], "min_blocks": 1,
        }  # fmt: skip
        masks = {"mask_stages": 0} if is_copied(workload) else {}
        return Configuration(name, "attention_wgmma", "sm_90", workload, base | masks | values)

    wide, keep = attention(99, head=64), attention(99, 100, head=64, mask="bool")
    narrow = replace(attention(99, head=32), alignment={"a": 16, "b": 16, "c": 2, "d": 16})
    bias = attention(99, 97, head=64, dtype="bfloat16", mask="float16", epilogue="scale_add")
    heads = {"heads": 6, "kv_heads": 2, "mask_axes": ("heads", "queries", "keys")}
    copied = [attention(99, 96, head=64, mask=dtype, **heads) for dtype in ("bool", "bfloat16", "float32")]
    return [
        make("two warpgroups", wide, block_q=128, block_k=32),
        make("three warpgroups", wide, block_q=192, head_tile=80, stages=2),
        make("narrow", narrow, head_tile=48, epilogue_staged=0),
        make("split", wide, split_k=3),
        make("narrow, split", narrow, head_tile=32, split_k=3, epilogue_staged=0),
        make("boolean mask", keep, block_q=128),
        make("added mask", bias, epilogue_fixed=1, stages=4),
        make("copied mask", copied[0], block_q=128, block_k=48, mask_stages=2),
        make("copied pairs", copied[1], block_k=32, mask_stages=1, split_k=2),
        make("copied floats", copied[2], block_k=48, mask_stages=2, stages=2),
        make("window", attention(99, head=64, causal=True, window=(37, None)), block_q=128),
        make("window, soft cap, split", attention(99, head=64, window=(20, 9), softcap=True), split_k=2),
        make("ragged", sequences.workload(3, 99, 90, head=128, causal=True), block_q=128, block_k=48, head_tile=128),
        make("ragged groups", sequences.workload(3, 99, 90, heads=6, kv_heads=2, head=64, causal=True), stages=2),
        make("ragged, split", sequences.workload(3, 99, 90, head=64, window=(20, 9)), split_k=2),
        make("polynomials", attention(99, head=64, causal=True), block_k=32, polynomials=3, longest_first=1),
        make("sinks", attention(99, head=64, mask="bool", sinks="float16", lse=True), block_q=128),
        make("sinks, split", sequences.workload(3, 99, 90, head=64, sinks="float32", lse=True), split_k=2),
    ]


def attention_tcgen05_configurations() -> list[Configuration]:
    """One and two warpgroups, heads of whole boxes, of part of one and of two, splits, both store routes, windows, soft
    caps, sinks, and sequences of different lengths."""

    def make(name: str, workload: Workload, **values: int) -> Configuration:
        base = {
            "block_q": 128, "block_k": 16, "head_tile": 64, "split_k": 1, "longest_first": 0, "stages": 3,
            "epilogue_staged": 1, "epilogue_fixed": 0, "vector_c": workload.align["c"], "min_blocks": 1,
            "score_tiles": 1,
        }  # fmt: skip
        masks = {"mask_stages": 0} if is_copied(workload) else {}
        return Configuration(name, "attention_tcgen05", "sm_100", workload, base | masks | values)

    wide, brains = attention(99, head=64), attention(99, head=128, dtype="bfloat16", epilogue="scale_add")
    narrow = replace(attention(99, head=32), alignment={"a": 16, "b": 16, "c": 2, "d": 16})
    bias = attention(99, 97, head=64, dtype="bfloat16", mask="float16", epilogue="scale_add")
    heads = {"heads": 6, "kv_heads": 2, "mask_axes": ("heads", "queries", "keys")}
    copied = [attention(99, 96, head=64, mask=dtype, **heads) for dtype in ("bool", "bfloat16", "float32")]
    return [
        make("two warpgroups", wide, block_q=256, block_k=32),
        make("two boxes", brains, head_tile=128, block_k=128, epilogue_fixed=1, stages=2),
        make("two warpgroups, two boxes", brains, head_tile=128, block_q=256, epilogue_fixed=1),
        make("two tiles of scores", wide, block_q=256, block_k=32, score_tiles=2),
        make("narrow", narrow, head_tile=48, epilogue_staged=0),
        make("narrow, split", narrow, head_tile=32, split_k=3, epilogue_staged=0),
        make("causal, split", attention(99, head=64, causal=True), block_q=256, split_k=2, longest_first=1),
        make("window, soft cap", attention(99, head=64, window=(20, 9), softcap=True), block_k=48),
        make("ragged", sequences.workload(3, 99, 90, head=64, causal=True), block_q=256, block_k=48, stages=4),
        make(
            "ragged groups",
            sequences.workload(3, 99, 90, heads=6, kv_heads=2, head=64, causal=True),
            stages=2,
            score_tiles=2,
        ),
        make("sinks", attention(99, head=64, sinks="float16", lse=True), block_q=256),
        make("sinks, split", sequences.workload(3, 99, 90, head=64, sinks="float32", lse=True), split_k=2),
        make("boolean mask", attention(99, 100, head=64, mask="bool"), block_q=256),
        make("added mask", bias, epilogue_fixed=1, stages=4, score_tiles=2),
        make("copied mask", copied[0], block_q=256, block_k=48, mask_stages=2),
        make("copied pairs", copied[1], block_k=32, mask_stages=1, split_k=2),
        make("copied floats", copied[2], block_k=48, mask_stages=2, stages=2, score_tiles=2),
        make("polynomials", attention(99, head=64, causal=True), block_k=32, polynomials=3, longest_first=1),
    ]
