"""Mutants of kernel sources: every barrier, wait and commit deleted, every predicate deleted and shifted by one.

Works on the flattened text, where `#line` directives name the file of a site. A site is a call in the kernels, not the
definition of the intrinsic itself.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

INTRINSICS = (
    *("types.cuh", "vectors.cuh", "intrinsics.cuh", "intrinsics_ptx.cuh", "intrinsics_arithmetic.cuh"),
    *("hopper.cuh", "hopper_products.cuh", "dependent.cuh", "vote.cuh", "saturated.cuh"),
    *("block_scaled.cuh", "blackwell.cuh", "blackwell_clusters.cuh", "blackwell_scales.cuh", "blackwell_stores.cuh"),
)
# Calls that order memory, copies or products.
ORDERING = ("barrier", "warp_barrier", "copy_async_wait", "copy_async_commit")
HOPPER = (
    *("mbarrier_init", "mbarrier_fence", "mbarrier_arrive", "mbarrier_arrive_at", "mbarrier_expect", "mbarrier_wait"),
    *("cluster_barrier", "cluster_begin", "store_tensor", "store_tensor_commit", "store_tensor_wait", "proxy_fence"),
    "store_matrix",
    *("copy_tensor", "copy_pixels", "wgmma_fence", "wgmma_commit", "wgmma_wait", "give_registers"),
    "take_registers",
)
# Arrivals and waits for what both blocks of a pair have stored, as Blackwell's kernels use them.
IN_PAIRS = ("mbarrier_arrive_in_pair", "mbarrier_wait_in_pair")
# Flags between blocks: an ordinary store makes the flag visible, but not the stores before it.
FLAGS = ("give_flag", "take_flag")
# Waits for the launch in front, which may still run.
DEPENDENT = ("grid_dependency_wait",)
WAITS = ("copy_async_wait", "wgmma_wait", "store_tensor_wait")
# Calls that describe a place: each argument is mutated by one of its units.
PLACES = {"matrix_descriptor": (("tile", "+ 16"), ("leading", "* 2"), ("stride", "* 2"))}
PHASES = ("mbarrier_wait", "mbarrier_wait_in_pair")
# `minimum` of run-time extents is how a tile's range is cut off; of constants it is no bound.
BOUNDS = ("within", "minimum")

_LINE = re.compile(r'#line (\d+) "([^"]+)"')
_NAMES = (*ORDERING, *HOPPER, *IN_PAIRS, *FLAGS, *DEPENDENT, *PLACES, *BOUNDS)
_CALL = re.compile(rf"\b({'|'.join(_NAMES)})\s*(<[^<>;()]*>)?\(")


@dataclass(frozen=True)
class Site:
    """One call in the flattened text: text[begin:end] is `code`, at `line` of `file`.

    `number` counts the equal calls before it in its file, so that its name survives edits elsewhere.
    """

    file: str
    line: int
    function: str
    code: str
    number: int
    begin: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.file} {self.code}" + (f" #{self.number + 1}" if self.number else "")

    @property
    def is_guard(self) -> bool:
        return self.function in BOUNDS


@dataclass(frozen=True)
class Mutant:
    """A site and its replacement. `change` names the kind of mutation."""

    site: Site
    change: str
    code: str

    def apply(self, text: str) -> str:
        return text[: self.site.begin] + self.code + text[self.site.end :]

    @property
    def name(self) -> str:
        return f"{self.site.name} -> {self.change}"


def sites(text: str) -> list[Site]:
    """Return every call site of the flattened `text`, in order."""
    found: list[Site] = []
    seen: Counter[tuple[str, str]] = Counter()
    for file, line, begin, code in _lines(text):
        if file in INTRINSICS or code.lstrip().startswith(("#", "//")):
            continue
        comment = code.find("//")
        for call in _CALL.finditer(code, 0, comment if comment >= 0 else len(code)):
            end = _closing(text, begin + call.end())
            whole = text[begin + call.start() : end]
            if call[1] != "minimum" or "params." in whole:
                whole = " ".join(whole.split())
                found.append(Site(file, line, call[1], whole, seen[file, whole], begin + call.start(), end))
                seen[file, whole] += 1
    return found


def mutants(site: Site) -> list[Mutant]:
    """Return all mutations of a site."""
    inner = site.code[site.code.index("(") + 1 : -1]
    if site.function == "within":
        index, bound = arguments(inner)
        return [
            Mutant(site, "deleted", "true"),
            Mutant(site, "bound + 1", f"within({index}, ({bound}) + 1)"),
            Mutant(site, "bound - 1", f"within({index}, ({bound}) - 1)"),
        ]
    if site.function == "minimum":
        first, second = arguments(inner)
        changed = [("first alone", f"({first})"), ("second alone", f"({second})")]
        changed += [(f"bound {sign} 1", f"({site.code} {sign} 1)") for sign in "+-"]
        return [Mutant(site, *each) for each in changed]
    if site.function in PLACES:
        return _moved(site, arguments(inner))
    found = [Mutant(site, "deleted", "(void)0")]
    if site.function in WAITS:
        groups = site.code[site.code.index("<") + 1 : site.code.index(">")]
        found.append(Mutant(site, "one group fewer", f"{site.function}<({groups}) + 1>()"))
    if site.function == "give_flag":
        flag, value = arguments(inner)
        stored = f"[&] {{ Vec<8> v; v.set(0, {value}); store_global({flag}, v, true); }}()"
        found.append(Mutant(site, "unfenced", stored))
    if site.function in IN_PAIRS:
        narrow = {"mbarrier_arrive_in_pair": f"mbarrier_arrive_at({inner}, 0)"}
        found.append(Mutant(site, "scope of a block", narrow.get(site.function, f"mbarrier_wait({inner})")))
    if site.function in PHASES:
        barrier, parity = arguments(inner)
        found.append(Mutant(site, "the other phase", f"{site.function}({barrier}, ({parity}) ^ 1)"))
    return found


def _moved(site: Site, given: list[str]) -> list[Mutant]:
    found = []
    for i, (what, change) in enumerate(PLACES[site.function]):
        changed = [*given[:i], f"({given[i]}) {change}", *given[i + 1 :]]
        found.append(Mutant(site, f"{what} {change}", f"{site.function}({', '.join(changed)})"))
    return found


def instrument(text: str) -> tuple[str, list[Site]]:
    """Return `text` with a cover("site <i>") before each call, and the sites by i."""
    every = sites(text)
    for i, site in reversed(list(enumerate(every))):
        text = text[: site.begin] + f'({{ cover("site {i}"); {site.code}; }})' + text[site.end :]
    return text, every


def arguments(inner: str) -> list[str]:
    """Return the arguments of a call, split at commas outside brackets."""
    depth, found = 0, [""]
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [each.strip() for each in found]


def _closing(text: str, opened: int) -> int:
    """Return the position after the bracket that closes the one before `opened`."""
    depth, at = 1, opened
    while depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return at


def _lines(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield (file, line, position, text) of every line that is not a `#line` directive."""
    file, number, position = "", 0, 0
    for line in text.splitlines(keepends=True):
        moved = _LINE.match(line)
        if moved:
            number, file = int(moved[1]), moved[2]
        else:
            yield file, number, position, line
            number += 1
        position += len(line)
