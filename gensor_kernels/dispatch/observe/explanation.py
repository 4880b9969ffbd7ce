"""The answer of `explain`: in words, as a table of details, and as HTML for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gensor_database.text import duration, escaped, span, table

if TYPE_CHECKING:
    from gensor_kernels.families.core.program import Program

TIERS = {
    0: "nothing to compute",
    1: "measured on this part",
    2: "tuned for this workload",
    3: "chosen from stored kernels",
    4: "the array library",
}
#: Limits that bound a call, in words.
BOUNDS = {"arithmetic": "the part's arithmetic", "memory": "the part's memory", "launch": "the launch alone"}
#: A kernel within this factor of its bound leaves nothing worth a search.
NEAR = 1.1


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`: which kernel serves a call, and why.

    `print` shows it in words, and `print(found.details)` as a table of everything that
    is known. Times are in microseconds; an attribute is None where there is no value.
    Notebooks draw it.

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
    bound_us : float or None
        Least time that the part's arithmetic, memory and launches allow.
    bound_by : str or None
        Limit that the bound comes from: "arithmetic", "memory" or "launch".
    library_us : float or None
        Predicted time of the array library's own calls, where it can be predicted and
        `vendor_us` is None.
    emulated : bool
        Whether the answer is for an emulated device, which has no array library.
    better : str or None
        A way to make the call faster.
    note : str or None
        What the result's dtype means for its values.

    Examples
    --------
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     found = gensor_kernels.explain(gensor_kernels.einsum, "ij,kj->ik", a, a)
    >>> found.tier, found.arch, found.bound_by, found.steps
    (3, 'orin-nano-8gb (sm_87)', 'launch', ())
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
    bound_us: float | None = None
    bound_by: str | None = None
    library_us: float | None = None
    emulated: bool = False
    better: str | None = None
    note: str | None = None

    def __str__(self) -> str:
        return "\n".join(self._sentences())

    @property
    def expected_us(self) -> tuple[float, float] | None:
        """The band of times around the predicted one, unless it was measured, or there is no kernel."""
        if self.measured_us is not None or self.predicted_us is None or self.family is None:
            return None
        from gensor_kernels.machine.expected import expected_us

        return expected_us(self.predicted_us, self.family)

    @property
    def details(self) -> str:
        """Everything that is known, as a table."""
        return "\n".join(f"{name:>9}  {text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        words = "".join(f'<p style="margin:0.2em 0">{escaped(each)}</p>' for each in self._sentences())
        details = f'<details><summary style="cursor:pointer">details</summary>{table(self._rows())}</details>'
        return f'<div style="color:inherit;max-width:60em">{words}{self._bars()}{details}</div>'

    # ---- words

    def _sentences(self) -> list[str]:
        """Return who serves, the steps before the kernel, the times of kernel, bound and library, and a faster way."""
        found = [self._server()]
        if self.staged:
            found.append(f"Besides, {self.staged}.")
        time = self._time()
        if time:
            found.append(time)
        if self.better:
            found.append(f"To make it faster: {self.better}.")
        if self.note:
            found.append(f"{self.note[0].upper()}{self.note[1:]}.")
        return found

    def _server(self) -> str:
        if self.tier == 0:
            return f"Nothing is launched on {self.arch}: {self.reason}."
        if self.tier == 4:
            who = "No kernel serves" if self.emulated else "CuPy serves"
            return f"{who} this call on {self.arch}, tier 4: {self.reason}."
        kernel = "" if self.kernel is None else f" {self.kernel[:12]}"
        return f"Kernel{kernel} of {self.family} serves this call on {self.arch}, tier {self.tier}: {self.reason}."

    def _time(self) -> str:
        """Return the time of the kernel, the bound, and the library's time."""
        own, how = (self.measured_us, "measured") if self.measured_us is not None else (self.predicted_us, "predicted")
        theirs, said = self._theirs(), []
        if own is not None:
            who = "Our best kernel would take" if self.tier == 4 else "It takes"
            said.append(f"{who} {duration(own)} ({how}{self._expected()}){self._beside(own)}")
        elif self.bound_us and self.bound_by:
            said.append(f"The bound is {duration(self.bound_us)} ({BOUNDS[self.bound_by]})")
        if theirs:
            said.append(f"CuPy takes {duration(theirs[0])} ({theirs[1]})")
        return "; ".join(said) + "." * bool(said)

    def _expected(self) -> str:
        """Return between which times a predicted one is expected, and on which part the like was measured."""
        if self.expected_us is None:
            return ""
        from gensor_kernels.machine.expected import MEASURED_PART

        part = "" if self.arch.startswith(f"{MEASURED_PART} ") else f" by times on {MEASURED_PART}"
        return f"; {span(*self.expected_us)} expected{part}"

    def _beside(self, own: float) -> str:
        if not self.bound_us or not self.bound_by:
            return ""
        ratio, limit = own / self.bound_us, BOUNDS[self.bound_by]
        if 1 <= ratio < 1.05:
            return f", which is its bound ({limit})"
        return f", {ratio:.2g} times its bound of {duration(self.bound_us)} ({limit})"

    def _theirs(self) -> tuple[float, str] | None:
        if self.vendor_us is not None:
            return self.vendor_us, "measured"
        return None if self.library_us is None else (self.library_us, "predicted")

    # ---- everything

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("tier", f"{self.tier} ({TIERS[self.tier]})"), ("reason", self.reason), ("device", self.arch)]
        if self.kernel is not None:
            rows += [("kernel", self.kernel[:12]), ("family", str(self.family))]
        if self.program is not None:
            rows.append(("program", ", ".join(f"{name} {value}" for name, value in self.program.values)))
        for name in ("predicted_us", "measured_us", "vendor_us", "library_us", "bound_us"):
            value = getattr(self, name)
            if value is not None:
                rows.append((name.removesuffix("_us"), duration(value)))
            if name == "predicted_us" and self.expected_us:
                rows.append(("expected", span(*self.expected_us)))
        if self.staged:
            rows.append(("besides", self.staged))
        if self.views:
            rows.append(("views", self.views))
        if self.note:
            rows.append(("note", self.note))
        rows += [(f"step {number}", f"tier {step.tier}, {step.reason}") for number, step in enumerate(self.steps, 1)]
        return rows

    def _bars(self) -> str:
        """Return times as bars, in colours that are seen on light and on dark pages."""
        theirs = self._theirs()
        times = [("bound", self.bound_us, "#888888"), ("measured", self.measured_us, "#3b82f6")]
        times += [("predicted", self.predicted_us, "#3b82f6"), ("CuPy", theirs[0] if theirs else None, "#d97706")]
        known = [(name, us, colour) for name, us, colour in times if us]
        longest = max((us for _, us, _ in known), default=0.0)
        cell = "display:inline-block;vertical-align:middle"
        return "".join(
            f'<div style="margin:0.15em 0;font-size:90%"><span style="{cell};width:6em">{name}</span>'
            f'<span style="{cell};width:{20 * us / longest:.1f}em;height:0.7em;background:{colour}"></span> '
            f"{duration(us)}</div>"
            for name, us, colour in known
        )
