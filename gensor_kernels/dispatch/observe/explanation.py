"""The answer of `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gensor_kernels.programs.core.program import Program

TIERS = {
    0: "nothing to compute",
    1: "measured on this part",
    2: "tuned for this workload",
    3: "chosen from stored kernels",
    4: "the array library",
}


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`; times in microseconds, None where there are none.

    `tier` is 1 to 4 (0: the result has no elements), `kernel` the digest of the kernel, `family` and `program`
    what it is, `workload` the canonical key it was looked up by, `staged` what happens to the arrays first,
    `views` the shapes and strides (in elements) a contraction was turned into, as a product (batch..., m, k) by
    (batch..., k, n). `steps` are the pairwise contractions of three and more operands; the rest then says what holds
    for the one that does most work. `predicted_us` claims no rate above the best published one of the part, where there
    is one (docs/potential.md).
    """

    tier: int
    reason: str
    arch: str
    kernel: str | None = None
    family: str | None = None
    program: Program | None = None
    workload: str | None = None
    predicted_us: float | None = None
    measured_us: float | None = None
    vendor_us: float | None = None
    staged: str | None = None
    views: str | None = None
    steps: tuple[Explanation, ...] = ()

    def __str__(self) -> str:
        rows = [("tier", f"{self.tier} ({TIERS[self.tier]})"), ("reason", self.reason), ("device", self.arch)]
        if self.kernel is not None:
            rows += [("kernel", self.kernel[:12]), ("family", str(self.family))]
        if self.program is not None:
            rows.append(("program", ", ".join(f"{name} {value}" for name, value in self.program.values)))
        for name in ("predicted_us", "measured_us", "vendor_us"):
            value = getattr(self, name)
            if value is not None:
                rows.append((name.removesuffix("_us"), f"{value:.1f} us"))
        if self.staged:
            rows.append(("before", self.staged))
        if self.views:
            rows.append(("views", self.views))
        rows += [(f"step {number}", f"tier {step.tier}, {step.reason}") for number, step in enumerate(self.steps, 1)]
        return "\n".join(f"{name:>9}  {text}" for name, text in rows)
