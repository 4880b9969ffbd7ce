"""The page: header, one section per part, style and script in one file without network requests."""

from __future__ import annotations

import base64
import hashlib
import statistics
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path

from gensor_database.record import now
from gensor_database.store import Store
from gensor_kernels.errors import GensorError
from gensor_tuner.output import output
from gensor_tuner.run.result import NEAR_BOUND

from . import tables
from .charts import predicted_and_measured, roofline, speedups, time_split
from .contents import Part, parts
from .drawing import Markup, join, tag
from .walked import walk

#: Nothing is fetched, and only the page's own script runs, whatever a database contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write(store: Store, arch: str | None, out: Path) -> str:
    """Write the page about a database, or about one capability; return a line about it. GensorError without records."""
    found = parts(store, arch)
    if not found:
        raise GensorError(f"{store.path} has no records{f' of {arch}' if arch else ''}: tune into it first")
    text = page(store.path.name, found)
    with output(out) as file:
        file.write(text)
    lines = sum(len(part.lines) for part in found)
    return f"{out}: {lines} workloads of {', '.join(part.name for part in found)}, {len(text.encode()):,} bytes"


def page(name: str, found: Sequence[Part]) -> str:
    """Return the whole document."""
    script = Markup(_file("page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{POLICY}; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"gensor-kernels: {name}"),
        tag("style", Markup(_file("page.css"))),
    )
    sections = [_section(place, part) for place, part in enumerate(found)]
    body = tag(
        "body",
        tag("a", "Skip to the figures", href="#main", class_="skip"),
        tag("header", _header(name, found)),
        tag("main", *sections, id="main"),
        tag("footer", tag("p", "Made by ", tag("code", "gensor-tune report"), ". One file, nothing is fetched.")),
        tag("div", id="tip", aria_hidden="true"),
        tag("p", id="said", class_="unseen", role="status", aria_live="polite"),
        tag("script", script),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _header(name: str, found: Sequence[Part]) -> Markup:
    measured = sum(len(part.measured) for part in found)
    every = sum(len(part.lines) for part in found)
    made = datetime.fromtimestamp(now(), timezone.utc).strftime("%Y-%m-%d")
    truth = f"None of the {every} workloads was timed on a GPU: all times here are predictions."
    if measured:
        truth = f"{measured} of {every} workloads were timed on a GPU; all other times are predictions."
    links = [tag("li", tag("a", f"{p.name} ({p.capability})", href=f"#part-{i}")) for i, p in enumerate(found)]
    parts = [tag("p", "gensor-kernels report", class_="kicker"), tag("h1", name), tag("p", truth, class_="lead")]
    parts.append(tag("p", f"Written {made}.", class_="quiet"))
    return join([*parts, tag("nav", tag("ul", *links), aria_label="Parts") if len(found) > 1 else ""])


def _section(place: int, part: Part) -> Markup:
    blocks = [
        tag("h2", part.name, tag("small", part.capability), id=f"part-{place}"),
        _figures(part),
        *(tag("p", sentence) for sentence in part.totals),
        *_roofline(part),
        _block("Predicted and measured", predicted_and_measured(part)),
        _block("Speed-up over the vendor's call", speedups(part)),
        _block("Where the time goes", time_split(part)),
        _block("One walk", walk(part)),
        _block("Kernels", tables.kernels(part)),
        _block("Workloads", tables.records(part)),
    ]
    return tag("section", *blocks, aria_labelledby=f"part-{place}")


def _block(title: str, inside: Markup) -> Markup:
    return tag("section", tag("h3", title), inside, class_="block")


def _roofline(part: Part) -> list[Markup]:
    if part.arch is None:
        reason = "This version's archs.toml does not list this part: it has no ceilings to draw."
        return [tag("p", reason, class_="absent")]
    if not part.served:
        return [tag("p", "No workload of this part has a kernel.", class_="absent")]
    return [_block("Roofline", roofline(part))]


def _figures(part: Part) -> Markup:
    both = ((line.predicted_us, line.record.bound_us) for line in part.lines)
    ratios = [predicted / bound for predicted, bound in both if predicted and bound]
    verified = sum(line.verified in ("emulator", "device") for line in part.lines)
    shown = [
        ("workloads", len(part.lines)),
        ("kernels", len({line.kernel.digest for line in part.lines if line.kernel})),
        ("verified by execution", f"{verified} of {len(part.lines)}"),
        ("predicted within 2x of the bound", f"{sum(r <= NEAR_BOUND for r in ratios)} of {len(ratios)}"),
        ("median of predicted / bound", f"{statistics.median(ratios):.2f}" if ratios else "none"),
        ("timed on a GPU", len(part.measured)),
    ]
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in shown), class_="figures")
