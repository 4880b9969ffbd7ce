"""Residual: a learned correction of the potential, ln(measured / predicted) from a Program's terms, with its
uncertainty.

A Residual is plain numbers (JSON, never a pickle), evaluated with NumPy.  Trees have at most SPLITS splits each, so
that a tree is a table (see `forest`): every split is one bit, and the bits of a tree are an index into its 2^SPLITS
values.

Levels, from knowledge of all parts to knowledge of one part: trees over every measurement; for each measured part a
weight of the shared trees, trees of its own, and offsets for the part, for a dtype on it, and for an operator of that
dtype.  An unmeasured part uses the shared trees at the weight that held-out parts showed, or UNSEEN: most corrections
learned on one GPU turned out to be specific to that GPU (docs/potential.md).

Choices follow `correction`, which abstains where the trees are not sure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import roofline
from .arch import Arch
from .forest import SPLITS as SPLITS
from .forest import F, Forest
from .roofline import DRAM_EFFICIENCY, SM_L2_BYTES, SUBCORES, Terms

#: Bumped when FEATURES or the meaning of the numbers change; other versions are refused.
VERSION = 1
#: Share of the shared trees that holds on a part without measurements, where no two parts tell.
UNSEEN = 0.15
#: Multiple of the doubt up to which `correction` abstains: two Programs are ordered by the difference of their
#: corrections, whose standard deviation is that of one times the root of 2.
ABSTAIN = math.sqrt(2)
#: Standard deviation of ln(measured / predicted) without a model: 0.11 and 0.15 on the measured spaces.
ANALYTIC_NOISE = 0.15
#: Standard deviation of the difference to another part of the same capability, or to another power mode.
BORROWED_NOISE = 0.1

#: Ratios and sizes that say which resource a Program leans on; see `features`.
FEATURES = (
    *("compute", "shared", "l2", "dram", "alone", "together", "issue_per_multiply", "issue_per_math", "warps"),
    *(
        "residents",
        "resident_warps",
        "registers",
        "shared_bytes",
        "chain",
        "math",
        "wavefronts",
        "wavefront_per_multiply",
    ),
    *("rounds", "tail", "l2_bytes", "blocks", "issue", "dram_bytes", "epilogue"),
)

#: Stands for no multiplication in the ratios of copies: above it, every ratio is a float32.
LEAST = F(1e-30)


def features(terms: Terms, arch: Arch, extra: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
    """(features, n) float32: FEATURES of Programs on a part, then ``extra`` columns in their order.

    compute, shared, l2, dram and alone are clocks of an iteration as `roofline.seconds` has them, over the largest of
    the first four; the rest are terms and their ratios.  Trees ask for order only, so nothing needs a logarithm.
    """
    t = terms
    pipe = np.maximum(t.math, t.multiplies + t.issue)
    quarter = np.ceil(t.warps * F(1 / SUBCORES)) * pipe
    resident_warps = t.residents * t.warps
    compute = np.ceil(resident_warps * F(1 / SUBCORES)) * pipe
    shared = t.residents * t.wavefronts * F(128 / arch.smem_bytes_per_clk)
    running = t.residents * F(arch.sms)
    l2 = t.l2_bytes * np.maximum(t.residents * F(1 / SM_L2_BYTES), running * F(1 / arch.l2_bytes_per_clk))
    dram_clk = arch.dram_gb_s * DRAM_EFFICIENCY / arch.clock_ghz
    dram = running * t.dram_bytes / (t.blocks * t.iterations) * F(1 / dram_clk)
    busiest = np.maximum(np.maximum(compute, shared), np.maximum(l2, dram))
    over = 1 / busiest
    rounds = t.blocks / running
    per_multiply, products = 1 / np.maximum(t.multiplies, LEAST), np.maximum(t.math, LEAST)
    columns = (
        *(compute * over, shared * over, l2 * over, dram * over, (quarter + t.chain) * over),
        (compute + shared + l2) * over,
        *(t.issue * per_multiply, t.issue / products, t.warps, t.residents, resident_warps),
        *(t.registers, t.shared_bytes),
        *(t.chain / quarter, t.math, t.wavefronts / t.warps, t.wavefronts / t.warps * per_multiply),
        *(rounds, np.ceil(rounds) / rounds, t.l2_bytes, t.blocks, t.issue, t.dram_bytes),
        t.epilogue_busy / (products * t.iterations),
        *(extra.values() if extra else ()),
    )
    out = np.empty((len(columns), len(t.blocks)), dtype=F)
    for row, column in zip(out, columns, strict=True):
        row[:] = column
    return out


@dataclass(frozen=True)
class Part:
    """Knowledge of one part: ``weight`` of the shared trees, own trees by bag, offsets, noise.

    Attributes
    ----------
    offsets : Mapping[str, float]
        Summands by "", "dtype" and "dtype/operator".
    noise : float
        Standard deviation that the trees leave unexplained.
    capability, sms : str, int
        Used to find the nearest part of the same capability; "" and 0 if unknown.
    """

    weight: float
    noise: float
    offsets: Mapping[str, float] = field(default_factory=dict)
    trees: tuple[Any, ...] = ()
    capability: str = ""
    sms: int = 0

    def __post_init__(self) -> None:
        numbers = (self.weight, self.noise, *self.offsets.values())
        if not all(isinstance(each, int | float) and math.isfinite(each) for each in numbers):
            raise ValueError("what is said of a part is no finite number")


def place(part: str, conditions: str = "{}") -> str:
    """The name under which a part is known that runs in the power mode that ``conditions`` (JSON; see
    Device.conditions) tell: another mode has other clocks.  The part's own where there are none."""
    mode = json.loads(conditions).get("power_mode")
    return part if mode is None else f"{part}@{mode}"


class Residual:
    """The model: ``names`` of its features, shared trees by bag (nested lists), parts by name.

    Raises ValueError where a tree is larger than a table holds, or splits by a feature there is not.
    """

    def __init__(
        self,
        names: Sequence[str],
        trees: Sequence[Any],
        parts: Mapping[str, Part],
        unseen_noise: float,
        unseen_weight: float = UNSEEN,
    ):
        self.names = tuple(names)
        self.trees = tuple(trees)
        self.parts = dict(parts)
        self.unseen = Part(weight=unseen_weight, noise=unseen_noise)
        shared = Forest.of(self.trees)
        own = {name: Forest.of(part.trees) for name, part in self.parts.items() if part.trees}
        self._joined = {name: shared.and_(forest, self.parts[name].weight) for name, forest in own.items()}
        self._shared = shared
        for forest in (shared, *own.values()):
            if not 0 <= forest.columns.min() <= forest.columns.max() < max(len(self.names), 1):
                raise ValueError("a tree splits by a feature the model does not have")

    def predict(self, x: np.ndarray, part: str, dtype: str = "", operator: str = "") -> tuple[np.ndarray, np.ndarray]:
        """(ln(measured / predicted), its standard deviation) for ``x`` (features, n) of `names`; float32 (n,) each."""
        forest, known, share = self._asked(x, part)
        bags = forest(x) * F(share)
        spread = bags.var(axis=0, ddof=min(len(bags) - 1, 1))
        return bags.mean(axis=0) + _offset(known, dtype, operator), np.sqrt(spread + F(known.noise**2))

    def correction(
        self, x: np.ndarray, part: str, dtype: str = "", operator: str = "", borrowed: bool = False
    ) -> np.ndarray:
        """Return ln(measured / predicted) as far as the trees are sure of it; float32 (n,).

        The mean of `predict`, with the trees' share ABSTAIN doubts closer to 0.  The best of many Programs by the mean
        itself is the one whose trees are most wrong: among Programs of nearly equal predictions the potential orders
        better (docs/potential.md).  ``borrowed``: the knowledge is of another part, see `nearest`.
        """
        forest, known, share = self._asked(x, part)
        sure = F(ABSTAIN * math.hypot(known.noise, BORROWED_NOISE if borrowed else 0.0))
        told = forest.mean(x) * F(share)
        return told - told.clip(-sure, sure) + _offset(known, dtype, operator)

    def _asked(self, x: np.ndarray, part: str) -> tuple[Forest, Part, float]:
        """Return the trees for a part, the knowledge of it, and the weight of the shared trees there."""
        if len(x) != len(self.names):
            raise ValueError(f"the model has {len(self.names)} features, not {len(x)}")
        known = self.parts.get(part, self.unseen)
        joined = self._joined.get(part)
        return (self._shared, known, known.weight) if joined is None else (joined, known, 1.0)

    def of(
        self, terms: Terms, arch: Arch, dtype: str = "", operator: str = "", conditions: str = "{}"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (ln(measured / predicted), its standard deviation) of Programs by their terms; float32 (n,) each.

        An unmeasured part uses the nearest measured part of its capability, with a larger deviation.  Raises ValueError
        if the model needs columns that the terms lack.
        """
        name, borrowed = self.nearest(arch, conditions)
        mean, deviation = self.predict(features(terms, arch), name, dtype, operator)
        return mean, np.sqrt(deviation**2 + F(BORROWED_NOISE**2)) if borrowed else deviation

    def knows(self, arch: Arch) -> bool:
        """Return whether a part of this part's capability was measured.

        Knowledge of another capability is worth less than the terms themselves (docs/potential.md).
        """
        name, _ = self.nearest(arch)
        return name in self.parts

    def nearest(self, arch: Arch, conditions: str = "{}") -> tuple[str, bool]:
        """Return (name of the part whose knowledge serves ``arch``, whether that is another part or another power
        mode).

        The same part comes first, then parts of the same capability by their number of SMs; ``arch`` itself without
        any.
        """
        wanted = place(arch.part, conditions)
        if wanted in self.parts:
            return wanted, False
        kin = [name for name, part in self.parts.items() if part.capability == arch.name and part.sms]
        own = [name for name in kin if name.partition("@")[0] == arch.part]
        near = min(own or kin, key=lambda name: (abs(math.log(self.parts[name].sms / arch.sms)), name), default=None)
        return (wanted, False) if near is None else (near, True)

    def to_json(self) -> str:
        """Canonical JSON text."""
        parts = {
            name: {
                **{"weight": p.weight, "noise": p.noise, "offsets": dict(p.offsets), "trees": list(p.trees)},
                **({"capability": p.capability, "sms": p.sms} if p.capability else {}),
            }
            for name, p in self.parts.items()
        }
        body = {"version": VERSION, "names": self.names, "trees": self.trees, "parts": parts}
        unseen = {"unseen_noise": self.unseen.noise, "unseen_weight": self.unseen.weight}
        return json.dumps(body | unseen, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Residual:
        """The model of a JSON text; raises ValueError for another version or other numbers than this one writes."""
        try:
            body = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"no residual: {error}") from None
        if not isinstance(body, dict) or body.get("version") != VERSION:
            raise ValueError(f"not a residual of version {VERSION}")
        try:
            parts = {
                str(name): Part(
                    *(p["weight"], p["noise"], p["offsets"], tuple(p["trees"])),
                    *(str(p.get("capability", "")), int(p.get("sms", 0))),
                )
                for name, p in body["parts"].items()
            }
            unseen = body["unseen_noise"], body.get("unseen_weight", UNSEEN)
            return cls(body["names"], body["trees"], parts, *unseen)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"damaged residual: {error!r}") from error


@dataclass(frozen=True)
class Learnt:
    """A Residual and the conditions (see Device.conditions) that predictions are for."""

    model: Residual
    conditions: str = "{}"

    def seconds(self, terms: Terms, arch: Arch, dtype: str, operator: str) -> np.ndarray:
        """The potential of Programs by their terms, corrected; float64 seconds (n,)."""
        part, borrowed = self.model.nearest(arch, self.conditions)
        told = self.model.correction(features(terms, arch), part, dtype, operator, borrowed)
        return roofline.seconds(terms, arch) * np.exp(told)


def _offset(part: Part, dtype: str, operator: str) -> np.float32:
    return F(sum(part.offsets.get(key, 0.0) for key in ("", dtype, f"{dtype}/{operator}")))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no finite number")


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        _no_number(text)
    return float(text)
