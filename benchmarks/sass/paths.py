"""Paths outside the hot loop: from its end until a tile is stored, and through a whole kernel without one."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.sass.build import LANES
from benchmarks.sass.units import COPIED_STORES, SHARED_READS, STAGED, STORES
from gensor_kernels.build.instruction import MATRIX, Instruction, products
from gensor_kernels.build.loops import Span, best_path, hot_loop, loops, steady_path, successors

#: A path may store at most this multiple of the requested bytes.
_TOO_MUCH = 1.5
#: Bytes of one store by all lanes, some of which may have nothing to store.
_ONE_STORE = 16 * LANES
#: The least share of the hot loop's multiply-adds that a loop over the last steps has.
_FEW = 1 / 16
_LOADS = frozenset({"LDG", "LDGSTS"})
_SUMS = "LDTM"  # a load from tensor memory
Cost = tuple[float, float]  # stalls, instructions
_Key = tuple[int, bool]


def common_loop(code: Sequence[Instruction]) -> Span | None:
    """Return the loop over whole tiles, or None where no loop computes.

    Of the loops with as many products as the hot loop, it has the fewest stalls: attention passes the tiles that its
    mask cuts in another loop.
    """
    hot = hot_loop(code)
    if hot is None:
        return None
    computes = products(code)
    alike = [span for span in loops(code) if sum(computes[slice(*span)]) == sum(computes[slice(*hot)])]
    innermost = [span for span in alike if not _inside(span, alike)]
    return min(innermost, key=lambda span: sum(each.clocks for each in steady_path(code, span)))


def behind_products(code: Sequence[Instruction]) -> int:
    """Return the index after the last innermost loop of products.

    A loop belongs to an epilogue if it has few multiply-adds compared with the hot loop, or reads no operands from
    shared memory where the hot loop does: an activation in float64 is a polynomial, whose coefficients are constants.
    """
    hot = hot_loop(code)
    if hot is None:
        return 0
    computes = products(code)
    counts = {span: sum(computes[slice(*span)]) for span in loops(code)}
    least = 1 if any(each.name in MATRIX for each in code) else max(counts[hot] * _FEW, 1)
    staged = _reads_shared(code, hot)
    holding = [span for span, count in counts.items() if count >= least and _reads_shared(code, span) >= staged]
    return max(end for first, end in holding if not _inside((first, end), holding))


def _turn(code: Sequence[Instruction]) -> int:
    """Return the index after the first instruction of the loop over tiles that loads sums from tensor memory, or 0."""
    turns = []
    for first, end in loops(code):
        names = {each.name for each in code[first:end]}
        if _SUMS in names and names.isdisjoint(MATRIX):  # a range with other warps' products is a jump back
            turns.append(first + 1)
    return min(turns, default=0)


def _reads_shared(code: Sequence[Instruction], span: Span) -> bool:
    return any(each.name in SHARED_READS for each in code[slice(*span)])


def epilogue(code: Sequence[Instruction], results: float, sums: float) -> Cost | None:
    """Return stalls and instructions of one warp from its last product until its tile is stored.

    Of the paths to the end of the kernel, or back to its next tile, it is the cheapest that stores one warp's `results`
    bytes, neither fewer nor partial sums besides. Where tensor copies store, the same bytes go to shared memory and
    count there. A loop is passed as often as the results need its stores, or the accumulators' `sums` bytes its stores
    to shared memory. Where warps store sums from tensor memory while another computes, their whole turn counts. The
    result is None where no path stores the results.
    """
    behind = _turn(code) or behind_products(code)
    copied = any(each.name in COPIED_STORES for each in code[behind:])
    kinds, sums = (STAGED, results) if copied else (STORES, sums)
    needs = [(STORES, results), (STAGED, sums)]
    times = often(code, behind, needs)
    # No path goes around a load of sums, as it may where there is nothing to sum.
    sums_loaded = [(at, at + 1) for at, each in enumerate(code) if at >= behind and each.name == _SUMS]
    path = stored_path(code, behind, results, kinds, times, True, sums_loaded)
    return _cost(code, times, path or stored_path(code, behind, results, kinds, times, True))


def whole(code: Sequence[Instruction], loaded: float, results: float) -> Cost | None:
    """Return stalls and instructions of one warp from a kernel's first instruction to its end, without products.

    `loaded` and `results` are the bytes of one warp's input and output: a loop is passed as often as its stores need
    for the output or, without stores, its loads for the input. No path goes around a loop that passes over the row.
    """
    needs = [(STORES, results), (_LOADS, loaded)]
    spans, kinds = loops(code), STORES | _LOADS
    passing = [span for span in spans if _bytes_moved(code, span, _inside(span, spans), kinds)]
    kept = [span for span in passing if not any(span in _inside(other, passing) for other in passing)]
    times = often(code, 0, needs, first_only=True)
    path = stored_path(code, 0, results, STORES, times, False, kept)
    if path is None:
        path = stored_path(code, 0, results, STORES, times, False)
    return _cost(code, times, path)


def often(
    code: Sequence[Instruction], behind: int, needs: Sequence[tuple[frozenset[str], float]], first_only: bool = False
) -> list[float]:
    """Return how often each instruction is executed per tile.

    A loop that moves bytes of a kind in `needs` is passed until it has moved all; `first_only`: only the first of the
    kinds that it moves counts, else the kind that takes the most passes.
    """
    spans = [span for span in loops(code) if span[0] >= behind]
    times = [1.0] * len(code)
    for first, end in sorted(spans, key=lambda span: span[0] - span[1]):  # outer loops first
        inside = _inside((first, end), spans)
        passes = []
        for kinds, wanted in needs:
            width = _bytes_moved(code, (first, end), inside, kinds) * LANES
            passes += [wanted / width] if width else []
        if passes:
            times[first:end] = [max(1.0, passes[0] if first_only else max(passes))] * (end - first)
        else:
            times[first:end] = [times[first]] * (end - first)
    return times


def _inside(loop: Span, spans: Sequence[Span]) -> list[Span]:
    return [span for span in spans if loop[0] <= span[0] and span[1] <= loop[1] and span != loop]


def _bytes_moved(code: Sequence[Instruction], loop: Span, inside: Sequence[Span], kinds: frozenset[str]) -> int:
    """Return the most bytes that a thread moves on a path through a loop, its inner loops left out."""
    worth = [
        each.width if each.name in kinds and not any(a <= at < b for a, b in inside) else 0
        for at, each in enumerate(code[slice(*loop)], loop[0])
    ]
    return sum(worth[at - loop[0]] for at in best_path(code, loop, worth)) if any(worth) else 0


def _cost(code: Sequence[Instruction], times: Sequence[float], path: Sequence[int] | None) -> Cost | None:
    """Return stalls and instructions of a path."""
    return None if path is None else (sum(times[at] * code[at].clocks for at in path), sum(times[at] for at in path))


def stored_path(
    code: Sequence[Instruction],
    begin: int,
    wanted: float,
    kinds: frozenset[str],
    times: Sequence[float],
    peeled: bool,
    kept: Sequence[Span] = (),
) -> list[int] | None:
    """Return indices of the instructions that count on the cheapest path that stores `wanted` bytes per warp.

    The path leads from `begin` to an end of the kernel or of the tile. `peeled`: the compiler may have put the main
    loop's last steps here, so the path counts from its last product on. No path goes around the loops in `kept`. None
    where no path stores the bytes.
    """
    # Costs of the best ways on from an instruction, by the bytes that they store and whether products follow on them,
    # each with the instruction that comes next, and its key there.
    ways: list[dict[_Key, tuple[float, int, _Key]]] = [{} for _ in range(len(code))]
    for at in reversed(range(begin, len(code))):
        each = code[at]
        here = times[at] * each.clocks
        bytes_here = round(times[at] * each.width * LANES) if each.name in kinds else 0
        closes = peeled and each.name in MATRIX
        following = [to for to in successors(code, at) if not any(at < first and end <= to for first, end in kept)]
        ahead = [(cost, to, key) for to in following for key, (cost, _, _) in ways[to].items()]
        if each.name == "EXIT" or (each.name == "BRA" and each.target is not None and each.target < begin):
            ahead.append((0.0, len(code), (0, False)))
        for cost, to, (stored, closed) in ahead:
            done = closed or closes
            key = (stored, True) if done else (stored + bytes_here, False)
            if key[0] <= max(wanted * _TOO_MUCH, _ONE_STORE):
                mine = (cost if done else cost + here, to, (stored, closed))
                ways[at][key] = min(ways[at].get(key, mine), mine)
    # A store that some lanes alone execute counts as one by all.
    enough = [key for key in ways[begin] if key[0] >= wanted / 2]
    if not enough:
        return None
    key = min(enough, key=lambda key: (abs(key[0] - wanted), ways[begin][key][0]))
    at, places = begin, []
    while at < len(code):
        if not key[1]:
            places.append(at)
        _, at, key = ways[at][key]
    return places
