"""The sizes an attention Program is verified on.

Together they take every branch: two whole blocks of rows and a partial one, more steps than tiles in the ring with a
partial last one, parts of the keys that are unequal and some that are empty, both diagonals, rows that see nothing, no
keys, heads that share K and V, masks that vary along some axes only, and windows.
"""

from __future__ import annotations

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.attention.attention import MASK_AXES
from gensor_kernels.operators.attention.forms import FORMS, window_sizes
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

from .order import LONGEST_FIRST

LATE, EARLY = "late", "early"


def key_step(workload: Workload) -> int:
    """Keys come in multiples of this in the class: a vector of the mask."""
    if workload.layouts.get("e", "s") == "s":
        return 1
    return max(workload.align["e"] // facts(workload.dtype["e"]).itemsize, 1)


def head_step(workload: Workload) -> int:
    """Return the number of which the size of a head is a multiple in the class."""
    vectors = (workload.align[x] // facts(workload.dtype[x]).itemsize for x in "abdc" if workload.layouts[x] != "s")
    return max((*vectors, 1))


def has_partial_keys(program: Program, workload: Workload) -> bool:
    """Return whether a step can be cut by the edge of the keys."""
    return key_step(workload) < program["block_k"]


def attention_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return the cases of a Program; large cases run `epilogue`."""
    block, step, split = program["block_q"], program["block_k"], program["split_k"]
    unit, whole = key_step(workload), program["head_tile"]
    # A vector short of the tile, where the class has such a size.
    head = max(whole - head_step(workload), head_step(workload))
    ragged = min(step - unit, max(unit, step * 5 // 8 // unit * unit)) if unit < step else 0
    steps = (program["stages"] + 3) * split - 1  # the last part has one fewer
    keys = steps * step - (step - ragged if ragged else 0)
    third = -(-(block + block * 5 // 8) // 3)
    windowed = FORMS[workload.operator].windowed
    ordered = program.get(LONGEST_FIRST.name) == 1
    bare = workload.epilogue if epilogue == workload.epilogue else ()

    def up(count: int) -> int:
        return -(-count // unit) * unit

    def case(
        name: str, rows: int, keys: int, head: int, heads: tuple[int, int, int], causal: int, axes: str,
        steps: tuple[str, ...], *schedule: tuple[str, str | int], window: tuple[int, int] = (-1, -1),
    ) -> Case:  # fmt: skip
        batch, kv_heads, group = heads
        sizes = {"batch": batch, "heads": kv_heads * group, "kv_heads": kv_heads, "queries": rows, "keys": up(keys)}
        sizes |= {"head": head, "causal": causal}
        if "mask_axes" in workload.size:
            sizes["mask_axes"] = _axes(axes, workload)
        if windowed:
            sizes |= window_sizes(sizes, window)
        return Case(name, workload.with_sizes(**sizes).with_epilogue(steps), schedule)

    shuffled = ((LATE, "reverse"), (EARLY, "forward"), (EARLY, 1), (LATE, 2))
    found = [
        case("blocks", 2 * block + block * 5 // 8, keys, whole, (1, 1, 1), 0, "bhqk", epilogue, (LATE, "forward")),
        case("shared heads", third, keys, head, (1, 1, 3), 1, "hqk", epilogue, *shuffled),
        case(
            "upper left", third, 3 * step + third, head, (2, 1, 3), 2, "bqk", bare, (EARLY, "reverse"), window=(5, -1)
        ),
        # A key short of whole steps, and a decoding query.
        case("granule", 1, 2 * split * step - unit, head, (1, 2, 1), 1, "hk", epilogue, (EARLY, "reverse")),
        case("one past", block + 1, split * step + unit, whole, (1, 1, 1), 1, "qk", bare, (LATE, 4)),
        case("blind rows", up(step) + block + 3, step + unit, head, (1, 1, 2), 1, "k", bare, (LATE, 3), window=(3, -1)),
        case("batch", 2, step + unit, head, (3, 2, 2), 0, "bk", bare, (LATE, "reverse")),
        case("no keys", 3, 0, head, (1, 2, 1), 0, "qk", epilogue, (EARLY, "forward")),
        *([case("entries", 2 * block + 1, up(2 * step), head, (1, 3, 1), 2, "q", bare, (LATE, 7))] if ordered else []),
        *([case("empty parts", 3, step, head, (2, 1, 1), 0, "q", bare, (LATE, "forward"))] if split > 1 else []),
    ]
    if windowed:
        rows = 2 * block + block * 5 // 8
        before = up(rows + (split + 2) * step) - rows  # the key of query 0
        # The first block's last query sees all keys of its second step but the first.
        left = before + block - 1 - (step + 1)
        found += [
            case("window", rows, rows + before, head, (1, 1, 1), 1, "hq", epilogue, (EARLY, 5), window=(left, -1)),
            case("both sides", third, 3 * step + third, whole, (2, 1, 3), 0, "bk", bare, *shuffled[:2],
                 window=(step // 2, step + 3)),
            case("own key", third, up(third), head, (1, 2, 1), 0, "q", bare, (LATE, 6), window=(0, 0)),
        ]  # fmt: skip
    return found


def _axes(letters: str, workload: Workload) -> int:
    """Bits of MASK_AXES by initials; along the keys exactly where the layout says that they are adjacent."""
    bits = sum(bit for axis, bit in MASK_AXES.items() if axis[0] in letters and axis != "keys")
    return bits | (MASK_AXES["keys"] if workload.layouts["e"] == "keys" or "k" in letters else 0)
