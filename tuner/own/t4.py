"""Results in the format T4 of the auto-tuning community (https://github.com/AutoTuningAssociation), schema 1.0.0."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from gensor_database.record import now
from gensor_kernels.own.description import Value

_INVALID = {"ok": "correct", "wrong": "correctness", "failed": "runtime"}


class Finalist(NamedTuple):
    """Knobs, the outcome of verification, and microseconds where they are known."""

    knobs: dict[str, Value]
    outcome: str
    predicted_us: float | None = None
    measured_us: float | None = None


def results(finalists: Sequence[Finalist]) -> dict[str, object]:
    """Return the JSON of finalists: the objective is the measured time, or else the predicted one, named as such."""
    stamp = datetime.fromtimestamp(now(), timezone.utc).isoformat()
    objective = "time" if any(each.measured_us is not None for each in finalists) else "predicted_us"
    rows = []
    for each in finalists:
        known = (("time", each.measured_us, 1e-3, "ms"), ("predicted_us", each.predicted_us, 1.0, "us"))
        made = [{"name": name, "value": us * by, "unit": unit} for name, us, by, unit in known if us is not None]
        times = [] if each.measured_us is None else [each.measured_us * 1e-3]
        rows.append(
            {
                "timestamp": stamp,
                "configuration": each.knobs,
                "times": {"compilation_time": None, "framework": None, "search_algorithm": None, "runtimes": times},
                "invalidity": _INVALID[each.outcome],
                "correctness": int(each.outcome == "ok"),
                "measurements": made,
                "objectives": [objective],
            }
        )
    return {"schema_version": "1.0.0", "results": rows}
