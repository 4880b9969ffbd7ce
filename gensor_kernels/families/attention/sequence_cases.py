"""The sizes on which attention over sequences of different lengths is verified.

Lengths are drawn by the operator (operators/attention/sequences.py): long sequences, sequences without queries, without
keys and without either, and rows after the last one. In addition to the branches of cases.py these take blocks without
rows, more sequences than a warp counts at once, pages longer and shorter than a step, and the page that is missing.
"""

from __future__ import annotations

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.attention.forms import FORMS, window_sizes
from gensor_kernels.operators.attention.sequences import KEY_SHARES, QUERY_SHARES, capacity
from gensor_kernels.operators.types.workload import Workload

from .cases import EARLY, LATE, head_step


def sequence_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return a Program's cases; large cases run `epilogue`, and in some three heads share keys and values."""
    group, form = 3, FORMS[workload.operator]
    block, step, split, whole = (program[name] for name in ("block_q", "block_k", "split_k", "head_tile"))
    head = max(whole - head_step(workload), head_step(workload))  # a vector short of the tile, where there is such
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    long = ((program["stages"] + 3) * split - 1) * step - step * 3 // 8  # keys, with a partial last step

    def case(
        name: str, batch: int, rows: int, keys: int, head: int, heads: tuple[int, int], causal: int, page: int,
        steps: tuple[str, ...], *schedule: tuple[str, str | int], window: tuple[int, int] = (-1, -1),
    ) -> Case:  # fmt: skip
        """Return a case whose first sequence has about so many `rows` (queries times heads of a group) and `keys`."""
        kv_heads, group = heads
        queries, sizes = -(-rows // group), {"batch": batch, "heads": kv_heads * group, "kv_heads": kv_heads}
        if form.ragged:
            queries = _whole(queries, batch, QUERY_SHARES)
        sizes |= {"queries": queries, "head": head, "causal": causal}
        if form.paged:
            table = -(-keys // page)
            sizes |= {"page_size": page, "table": table, "pages": 2 * table + 1}
        else:
            sizes["keys"] = _whole(keys, batch, KEY_SHARES)
        sizes |= window_sizes({"queries": queries, "keys": capacity(sizes), "causal": causal}, window)
        return Case(name, workload.with_sizes(**sizes).with_epilogue(steps), schedule)

    rows, several = 2 * block + block * 5 // 8, -(-(block + block * 5 // 8) // group) * group
    shuffled = ((LATE, "reverse"), (EARLY, "forward"), (EARLY, 1), (LATE, 2))
    return [
        case("blocks", 5, rows, long, whole, (1, 1), 0, 16, epilogue, (LATE, "forward")),
        case("shared heads", 3, several, long, head, (2, group), 1, 4, epilogue, *shuffled),
        case("window", 5, rows, rows + (split + 2) * step, head, (1, 1), 1, 16, epilogue, (EARLY, 5), (LATE, 3),
             window=(step + block // 2, -1)),
        case("both sides", 4, several, 3 * step + several, whole, (1, group), 0, 1 << step.bit_length(), bare,
             *shuffled[:2], window=(step // 2, step + 3)),
        case("upper left", 5, several, 3 * step + several, head, (1, group), 2, 8, bare, (EARLY, "reverse"),
             window=(5, -1)),
        # The last step lacks one key.
        case("blind rows", 1, block + 2 * step + 3, 2 * step - 1, head, (1, 2), 1, 16, bare, (LATE, 4)),
        case("many", 64, 2, step, head, (1, 2), 1, 1, bare, (EARLY, 6)),
        case("own key", 2, block, block, head, (1, 1), 1, 32, bare, (LATE, 7), window=(0, 0)),
        case("no keys", 2, 3, 0, head, (1, 2), 0, 16, epilogue, (EARLY, "forward")),
    ]  # fmt: skip


def _whole(first: int, batch: int, shares: tuple[int, ...]) -> int:
    """Return the rows of all sequences of which the first has this many (Sequences.draw)."""
    each = [shares[number % len(shares)] for number in range(batch)]
    return -(-first * (sum(each) + 1) // each[0])
