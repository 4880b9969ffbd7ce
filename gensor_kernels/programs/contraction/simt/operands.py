"""What an operand of contraction_simt costs a step: its loads into shared memory, and the reading of its fragments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.programs.contraction.complex import planes, word_bytes
from gensor_kernels.programs.contraction.implicit_gemm import copy_lines
from gensor_kernels.programs.contraction.mixed_input import ELEMENT_ISSUE, stored
from gensor_kernels.programs.contraction.problem import extents, power_of_two_in
from gensor_kernels.programs.core.banks import wavefronts
from gensor_kernels.programs.core.family import Part, Values

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


def transposed(workload: Workload, operand: str) -> bool:
    """Whether an operand lies contiguous along k (or without a unit stride): transposed on its way in."""
    return extents(workload).unit[operand] in ("k", "s")


def matrices(workload: Workload, operand: str) -> int:
    """Matrices an operand consists of."""
    return extents(workload).matrices if operand == "b" else 1


@lru_cache(maxsize=512)
def fragment_clocks(axis: str, group: int, lanes: int, word: int) -> int:
    """Wavefronts to read one group of adjacent entries: along M lanes of a row are neighbours, along N they repeat."""
    lane = np.arange(32)
    place = lane // (32 // lanes) if axis == "m" else lane % lanes
    words = min(group & -group, max(1, 16 // word))
    return sum(wavefronts((place * group + entry) * word, words * word) for entry in range(0, group, words))


def fragment(workload: Workload, operand: str) -> Part:
    """Shared loads of a warp for one k of an operand's fragment, from every plane of the tile."""
    accumulator = extents(workload).bytes_acc
    axis = {"a": "m", "b": "n"}[operand]

    def function(v: Values) -> dict[str, np.ndarray]:
        thread, groups = v[f"thread_{axis}"], v[f"vthread_{axis}"]
        lanes = v["lanes_m"] if axis == "m" else 32 // v["lanes_m"]
        group, word = np.maximum(thread // groups, 1), word_bytes(v["form"], accumulator)
        keys = zip(group.tolist(), lanes.tolist(), word.tolist(), strict=True)
        clocks = np.array([fragment_clocks(axis, *key) for key in keys])
        reads = thread / np.minimum(power_of_two_in(group), np.maximum(1, 16 // word))
        tiles = planes(v["form"]) * matrices(workload, operand)
        return {
            f"read_issue_{operand}": tiles * reads,
            f"read_clocks_{operand}": tiles * groups * clocks,
            f"fits_groups_{operand}": thread % groups == 0,
        }

    return Part((f"thread_{axis}", f"vthread_{axis}", "lanes_m", "form"), function, fixed=True)


@lru_cache(maxsize=4096)
def transposing_clocks(lanes: int, elements: int, row_bytes: int, span: int, word: int) -> int:
    """Wavefronts to store one element per thread of an operand that is transposed on its way in.

    ``lanes`` threads lie side by side along k, ``elements`` apart; ``row_bytes`` is a row's length modulo the
    banks' 128; flipping columns below ``span`` is the swizzle (1: none).  TileShape in simt_tile.cuh.
    """
    thread = np.arange(32)
    lane, line = thread % lanes, thread // lanes
    flip = lane * (128 // word // lanes) % span
    row = row_bytes + 65536  # distinct rows: equal banks, not equal addresses
    return wavefronts(lane * elements * row + (line ^ flip) * word, word)


def loads(workload: Workload, operand: str) -> Part:
    """Global loads of an operand's step and what one of them costs (TileShape in simt_tile.cuh)."""
    e = extents(workload)
    axis = {"a": "m", "b": "n"}[operand]
    element = stored(e, operand)
    cast = ELEMENT_ISSUE[e.dtype[operand]] if element != e.element else int(e.element != e.bytes_acc)

    def common(v: Values, inner: np.ndarray, outer: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        elements = v[f"vector_{operand}"] // element
        return elements, {
            f"per_line_{operand}": np.maximum(inner // elements, 1),
            f"lines_{operand}": outer,
            f"fits_vector_{operand}": inner % elements == 0,
            f"load_words_{operand}": np.maximum(v[f"vector_{operand}"] / 4, 1) * 0.4 + 1.2,
        }

    def converting(v: Values, elements: np.ndarray) -> np.ndarray:
        """Instructions of a load's elements on their way: a cast, a flipped sign, a sum of parts."""
        return elements * (cast + int(e.conjugated[operand]) + (v["form"] == 3))

    def stores(v: Values, lanes: np.ndarray, elements: np.ndarray) -> np.ndarray:
        extent, pad, word = v[f"block_{axis}"], v["pad"], word_bytes(v["form"], e.bytes_acc)
        span = np.where(pad == 1, 1, np.minimum(128 // word, power_of_two_in(extent)))
        row = (extent + 4 * pad) * word % 128
        keys = zip(lanes.tolist(), elements.tolist(), row.tolist(), span.tolist(), word.tolist(), strict=True)
        return planes(v["form"]) * np.array([transposing_clocks(*key) for key in keys])

    def by_k(v: Values) -> dict[str, np.ndarray]:
        elements, outputs = common(v, v["block_k"], v[f"block_{axis}"])
        most = np.clip(32 // v[f"vector_{operand}"], 1, 8)
        lanes = np.minimum(power_of_two_in(outputs[f"per_line_{operand}"]), most)
        return outputs | {
            f"load_lanes_{operand}": lanes,
            f"load_issue_{operand}": 3 + converting(v, elements) + elements * planes(v["form"]),
            f"load_clocks_{operand}": elements * stores(v, lanes, elements) + 1,
        }

    def by_entry(v: Values) -> dict[str, np.ndarray]:
        elements, outputs = common(v, v[f"block_{axis}"], v["block_k"])
        stored = elements * word_bytes(v["form"], e.bytes_acc) / 4
        clocks = planes(v["form"]) * stored * np.where(stored > 4, 2, 1)
        return outputs | {
            f"load_issue_{operand}": 3 + converting(v, elements) + np.ceil(stored / 4) * planes(v["form"]),
            f"load_clocks_{operand}": clocks + 1 + np.maximum(v[f"vector_{operand}"] / 4, 1),
        }

    names = ("block_k", f"vector_{operand}", f"block_{axis}", "form")
    if transposed(workload, operand):
        return Part((*names, "pad"), by_k, fixed=True)
    return Part(names, by_entry, fixed=True)


def load_clocks(c: Mapping[str, np.ndarray], workload: Workload, operand: str) -> np.ndarray:
    """Wavefronts of one of these loads: what it stores, and the lines that it is scattered over."""
    own = c[f"load_clocks_{operand}"]
    if not transposed(workload, operand):
        return own
    return own + copy_lines(c, workload, operand, c[f"load_lanes_{operand}"])
