"""The layers of a model and their bounds: JSON lines, and a plot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gensor_kernels import install
from gensor_kernels.errors import ConfigError
from gensor_kernels.graph.execution.layers import Layer, Layers

#: Layers that a plot shows: the ones that take most time, in the order of the model.
MOST = 60
#: Colours of the first families, the others share the last; "array library" is grey.
LIBRARY = "array library"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def summaries(layers: Layers) -> Iterator[dict[str, Any]]:
    """Yield a dictionary for JSON per layer, with times in microseconds, and one for the whole model."""
    for layer in layers:
        yield {
            "layer": layer.name,
            "operators": layer.operators.split(" + "),
            "dtype": layer.result.dtype.name if layer.result else None,
            "shape": layer.result.shape if layer.result else None,
            "served_by": layer.by,
            "tiers": [each.tier for each in layer.served],
            "kernels": [each.kernel for each in layer.served],
            **{name: getattr(layer, name) for name in ("predicted_us", "measured_us", "bound_us", "library_us")},
            **_band(layer),
        }
    total = {"layers": len(layers), "us": layers.us, "measured": layers.timed, "bound_us": layers.bound_us}
    yield {"model": total | _band(layers)}


def _band(found: Layer | Layers) -> dict[str, float | None]:
    return dict(zip(("expected_low_us", "expected_high_us"), found.expected_us or (None, None), strict=True))


def plot(layers: Layers, title: str, out: Path) -> None:
    """Draw time and bound of each layer as .png or .svg; ConfigError without matplotlib or where that fails."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(f"--profile draws with matplotlib: {install.command('plot')}") from None
    shown = [each for each in layers if each.us]
    least = sorted((each.us or 0.0 for each in shown), reverse=True)[:MOST][-1:] or [0.0]
    shown = [each for each in shown if (each.us or 0.0) >= least[0]][:MOST]
    names = sorted(dict.fromkeys(each.by for each in shown), key=LIBRARY.__eq__)  # the library comes last
    colours = {name: COLOURS[min(place, len(COLOURS) - 1)] for place, name in enumerate(names)}
    colours |= {LIBRARY: "#999999"} if LIBRARY in colours else {}
    figure = Figure(figsize=(max(6.0, 2.0 + 0.22 * len(shown)), 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for name, colour in colours.items():
        places = [place for place, each in enumerate(shown) if each.by == name]
        axes.bar(places, [shown[place].us for place in places], color=colour, label=name, width=0.8)
    bounds = [(place, each.bound_us) for place, each in enumerate(shown) if each.bound_us]
    if bounds:
        places_of, values = zip(*bounds, strict=True)
        axes.hlines(values, [each - 0.4 for each in places_of], [each + 0.4 for each in places_of], "black", lw=1.5)
        axes.plot([], [], color="black", label="bound of the part (roofline)")
    axes.set_xticks(range(len(shown)), [each.name[-24:] for each in shown], rotation=90, fontsize=6)
    axes.set_ylabel(f"time of a layer, µs ({'measured' if layers.timed else 'predicted'})")
    axes.set_title(f"{title}: {layers.us:.0f} µs, the bound is {layers.bound_us:.0f} µs", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    axes.margins(x=0.01)
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:  # ValueError: an ending that names no format
        raise ConfigError(f"{out}: the plot cannot be written: {error}") from None
