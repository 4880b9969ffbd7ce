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
    """The answer of `explain`: which kernel serves a call, and why.

    `print` shows it as a table. Times are in microseconds; an attribute is None where
    there is nothing to tell.

    Attributes
    ----------
    tier : int
        1: measured on this part, 2: tuned for this workload, 3: chosen from stored
        kernels, 4: the array library, 0: nothing to compute.
    reason : str
        Why this tier serves the call.
    arch : str
        Part and capability of the device.
    kernel : str or None
        Digest of the kernel.
    family : str or None
        Kernel family.
    program : Program or None
        Coordinates of the kernel: tile sizes, stages, splits.
    workload : str or None
        Canonical key that the kernel was looked up by.
    predicted_us : float or None
        Predicted time. It claims no rate above the best published rate of the part,
        where there is one (docs/potential.md).
    measured_us : float or None
        Measured time of the kernel.
    vendor_us : float or None
        Measured time of the array library.
    staged : str or None
        What happens to the arrays first: conversions and copies.
    views : str or None
        Shapes and strides (in elements) that a contraction was turned into, as a
        product (batch..., m, k) by (batch..., k, n).
    steps : tuple of Explanation
        Pairwise contractions of three and more operands. The other attributes then
        describe the contraction that does most work.

    Examples
    --------
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     found = gensor_kernels.explain(gensor_kernels.einsum, "ij,kj->ik", a, a)
    >>> found.tier, found.arch, found.steps
    (3, 'orin-nano-8gb (sm_87)', ())
    >>> print(found.views)
    (2, 3) of strides (3, 1) by (3, 2) of strides (1, 3) into (2, 2) of strides (2, 1)
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
