"""The hot loop of machine code, and the path through it on which every step is whole.

The sum of the stall counts along this path is the least number of clocks in which one warp can issue an iteration,
whatever else runs on its scheduler. `python -m benchmarks.sass` explains what follows from the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from .instruction import MATRIX, SCALAR, Instruction, products

Span = tuple[int, int]  # first instruction, last + 1

_BARRIER = "BAR"
#: Loads and copies of operands: every whole step has them.
_READS = frozenset({"LDGSTS", "LDG", "LDS", "LDSM", "UTMALDG", "UBLKCP"})
# A path is better with more products, then with more loads, then with fewer stalls. A loop has fewer than 2^20 loads
# and clocks of stalls.
_PRODUCT, _READ = 1 << 40, 1 << 20


def loops(code: Sequence[Instruction]) -> list[Span]:
    """Return the instructions between each backward branch and its target, in the order of the code.

    Loops nest. A range that begins in a loop and ends after it is a jump back from a rare case of that loop, which
    the compiler moved away: such a range is no loop.
    """
    spans = {
        (each.target, at + 1)
        for at, each in enumerate(code)
        if each.name == "BRA" and each.target is not None and each.target <= at
    }
    return sorted(span for span in spans if not any(first < span[0] < end < span[1] for first, end in spans))


def hot_loop(code: Sequence[Instruction]) -> Span | None:
    """Return the innermost loop with the most matrix instructions (without any: with the most multiply-adds).

    Loops with a block barrier come first. Returns None where no loop computes.
    """
    spans = loops(code)
    names = list(map(attrgetter("name"), code))
    for kinds in (MATRIX, SCALAR):
        found = [name in kinds for name in names]
        holding = {span: count for span in spans if (count := sum(found[slice(*span)]))}
        innermost = [span for span in holding if not _holds_another(span, holding)]
        # The main loop passes a barrier on every step; an epilogue's loop may have more multiply-adds, but has none.
        candidates = [span for span in innermost if _BARRIER in names[slice(*span)]]
        if innermost:
            return max(candidates or innermost, key=lambda span: holding[span])
    return None


def _holds_another(span: Span, others: dict[Span, int]) -> bool:
    return any(span[0] <= begin and end <= span[1] and (begin, end) != span for begin, end in others)


def steady_path(code: Sequence[Instruction], loop: Span) -> tuple[Instruction, ...]:
    """Return the instructions of one iteration of a loop where every step is whole.

    Of the paths from the loop's first instruction to its backward branch it has the most products, then the most loads
    and copies, then the fewest clocks of stalls: rare cases and slow paths are left out, the work of a step is not.
    """
    body = code[slice(*loop)]
    worth = [
        computes * _PRODUCT + (each.name in _READS) * _READ - each.clocks
        for each, computes in zip(body, products(body), strict=True)
    ]
    return tuple([code[at] for at in best_path(code, loop, worth)])


def best_path(code: Sequence[Instruction], loop: Span, worth: Sequence[int]) -> list[int]:
    """Return the indices of the instructions on the path through one iteration with the greatest sum of `worth`.

    `worth` has one value for each instruction of the loop. An inner loop is passed once, a called function not entered.
    Where no path is found, this is the whole loop.
    """
    first, end = loop
    last = end - first  # stands for the next iteration
    best: list[int | None] = [None] * last + [0]  # value of the best path from here to the loop's end
    step = [last] * last
    for at in reversed(range(last)):
        if at == last - 1 or code[first + at].falls_through:
            following = [at + 1]
        else:
            following = [to - first for to in successors(code, first + at) if to < end]
        known = [(value, -to) for to in following if (value := best[to]) is not None]
        if known:
            value, to = max(known)
            best[at], step[at] = value + worth[at], -to
    if best[0] is None:  # nothing is known to be left out
        return list(range(first, end))
    path, at = [], 0
    while at < last:
        path.append(first + at)
        at = step[at]
    return path


def successors(code: Sequence[Instruction], at: int) -> list[int]:
    """Return where control may go from an instruction, forward only; see `followers`."""
    return [to for to in followers(code, at) if to > at]


def followers(code: Sequence[Instruction], at: int) -> list[int]:
    """Return where control may go from an instruction, forward and backward.

    An indirect branch goes to its known targets: without the cubin's table no path passes it.
    """
    each = code[at]
    if each.falls_through and at + 1 < len(code):
        return [at + 1]
    following = {to for to in (each.target, *each.targets) if to is not None}
    if not (each.jumps or each.ends) and at + 1 < len(code):
        following.add(at + 1)
    return sorted(following)
