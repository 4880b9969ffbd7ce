"""The speed-ups of a run as one picture: a vendor's times over ours, sorted, coloured by kernel family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .summary import TIMED, VENDORS, Ends, with_cublas

TICKS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0)


def draw(ends: Ends, path: Path, title: str) -> str:
    """Draws every workload that was timed beside somebody; what to print: the file, or why there is none."""
    rows = [with_cublas(end) for (step, _), end in ends.items() if step in TIMED and end.get("vendors_us")]
    if not rows:
        return "no plot: nothing was timed beside a vendor"
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "no plot: pip install matplotlib"
    vendors = [name for name in VENDORS if any(name in row["vendors_us"] for row in rows)]
    families = sorted({row["group"].partition(" ")[0] for row in rows})
    figure, panels = pyplot.subplots(
        1, len(vendors), figsize=(1 + 3.6 * len(vendors), 4.2), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, vendor in zip(panels[0], vendors, strict=True):
        _panel(panel, vendor, [row for row in rows if vendor in row["vendors_us"]], families)
    panels[0][0].set_ylabel("vendor's time / ours (above 1 we are faster)")
    panels[0][-1].legend(
        fontsize="x-small", loc="upper left", title="family of the best kernel", title_fontsize="x-small"
    )
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return f"plot: {path}"


def _panel(panel: Any, vendor: str, rows: Sequence[dict[str, Any]], families: Sequence[str]) -> None:
    ranked = sorted((row["vendors_us"][vendor] / row["best_us"], row["group"].partition(" ")[0]) for row in rows)
    for number, family in enumerate(families):
        at = [place for place, (_, of) in enumerate(ranked) if of == family]
        panel.scatter(at, [ranked[place][0] for place in at], s=9, color=f"C{number % 10}", label=family)
    panel.axhline(1.0, color="black", linewidth=0.8)
    panel.set_yscale("log")
    panel.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    panel.minorticks_off()
    panel.set_xlabel("workloads, sorted")
    panel.set_title(f"{vendor}: ahead on {sum(ratio > 1 for ratio, _ in ranked)} of {len(ranked)}", fontsize="medium")
