"""Which rows of the comparison are good enough, and why the others are not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Ours may be at most this multiple of the best peer's.
TOLERANCE = 1.05
ATTENTION_TOLERANCE = 1.1  # of the rate at the ceiling, on parts with wgmma
#: With stalls of at most 1 clock per clock of the unit even one warp keeps the unit busy: fewer are no better. Products
#: of a warpgroup end at waits, so there the same is claimed of half a clock only.
FLOOR, GROUP_FLOOR = 1.0, 0.5
#: Rates closer than this are the same: the configuration with fewer stalls is then a peer's best.
NEAR = 0.99

Line = Mapping[str, Any]  # Figures.to_dict()


def best(lines: Sequence[Line]) -> Line | None:
    """Return a peer's best kernel: of those within 1 % of its highest rate, the one with the fewest stalls."""
    spilling = [line for line in lines if not line["stack_bytes"]] or lines
    top = max((line["rate"] for line in spilling), default=0.0)
    near = [line for line in spilling if line["rate"] >= NEAR * top]
    return min(near, key=lambda line: (line["stalls_per_unit"], line["configuration"]), default=None)


def counterpart(lines: Sequence[Line], ours: Line | None) -> Line | None:
    """Return the kernel of a peer that ours is compared with: its best of our unit, else its best."""
    alike = [] if ours is None else [line for line in lines if _unit(line) == _unit(ours)]
    return best(alike or lines)


def per_result(line: Line, rows: int | None) -> float | None:
    """Return an epilogue's stalls for each of a thread's results that the workload has, or None where it has no path.

    A tile higher than the workload's `rows` has results that are never stored. `configuration` names its height first.
    """
    stalls, high = line["epilogue_per_result"], re.search(r"(\d+)x", line["configuration"])
    if stalls is None or high is None or rows is None:
        return stalls
    return round(stalls * max(int(high[1]) / rows, 1.0), 2)


def failures(
    ours: Line | None, peers: Mapping[str, Sequence[Line]], workload: str, arch: str, rows: int | None = None
) -> list[str]:
    """Return what is not good enough about our kernel of a row, one sentence each; [] where all of it is.

    `ours` are our figures, or None where we have no kernel, `peers` those of every kernel of each peer; `rows`:
    Case.rows.
    """
    if ours is None:
        return ["no kernel of ours"] if any(peers.values()) else []
    found = [f"{ours['stack_bytes']} bytes of stack"] if ours["stack_bytes"] else []
    alike = {maker: best([line for line in lines if _unit(line) == _unit(ours)]) for maker, lines in peers.items()}
    same = {maker: line for maker, line in alike.items() if line is not None}
    every = {maker: line for maker, lines in peers.items() if (line := best(lines)) is not None}
    if same:
        found += _against(ours, same)
    elif every:
        tolerance = ATTENTION_TOLERANCE if workload.startswith("attention") else TOLERANCE
        maker, line = max(every.items(), key=lambda item: float(item[1]["rate"]))
        if ours["rate"] * tolerance < line["rate"]:
            found.append(f"rate {ours['rate']:g} < {line['rate']:g} / {tolerance} ({maker}, {line['unit']})")
    found += _epilogue(ours, same.get("cutlass") or every.get("cutlass"), rows)
    triton = every.get("triton")
    bounded = same and workload == "attention_causal" and arch == "sm_90"  # else compared above
    if triton is not None and bounded and ours["rate"] * ATTENTION_TOLERANCE < triton["rate"]:
        found.append(f"rate {ours['rate']:g} < {triton['rate']:g} / {ATTENTION_TOLERANCE} (triton)")
    if triton is not None and workload.startswith("softmax"):
        mine, theirs = ours["instructions_per_element"], triton["instructions_per_element"]
        if mine > theirs:
            found.append(f"instructions/element {mine:g} > {theirs:g} (triton)")
    return found


def _unit(line: Line) -> tuple[str, bool]:
    return line["unit"], line["grouped"]


def _against(ours: Line, same: Mapping[str, Line]) -> list[str]:
    found = []
    floor = 0.0 if ours["unit"] == "dram" else GROUP_FLOOR if ours["grouped"] else FLOOR
    maker, line = min(same.items(), key=lambda item: float(item[1]["stalls_per_unit"]))
    if max(ours["stalls_per_unit"], floor) > TOLERANCE * max(line["stalls_per_unit"], floor):
        found.append(f"stalls/unit {ours['stalls_per_unit']:g} > {TOLERANCE} x {line['stalls_per_unit']:g} ({maker})")
    maker, line = max(same.items(), key=lambda item: float(item[1]["chain"]))
    if min(ours["chain"], 1.0) * TOLERANCE < min(line["chain"], 1.0):
        found.append(f"chain {ours['chain']:g} < {min(line['chain'], 1.0):g} / {TOLERANCE} ({maker})")
    return found


def _epilogue(ours: Line, cutlass: Line | None, rows: int | None) -> list[str]:
    theirs = None if cutlass is None else per_result(cutlass, rows)
    if theirs is None:
        return []
    mine = per_result(ours, rows)
    if mine is None:
        return ["no path through our epilogue was found"]
    return [f"epilogue stalls/result {mine:g} > {theirs:g} (cutlass)"] if mine > theirs else []
