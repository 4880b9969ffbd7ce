"""Results in the format T4 of the auto-tuning community (https://github.com/AutoTuningAssociation), schema 1.0.0."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from gensor_database.record import now
from gensor_kernels.own.description import Value

_INVALID = {"ok": "correct", "wrong": "correctness", "failed": "runtime"}


def results(finalists: Iterable[tuple[dict[str, Value], str, float | None]]) -> dict[str, object]:
    """Return the JSON of (knobs, outcome, predicted microseconds); a prediction is named as one."""
    stamp = datetime.fromtimestamp(now(), timezone.utc).isoformat()
    rows = []
    for knobs, outcome, predicted in finalists:
        measurements = [] if predicted is None else [{"name": "predicted_us", "value": predicted, "unit": "us"}]
        rows.append(
            {
                "timestamp": stamp,
                "configuration": knobs,
                "times": {"compilation_time": None, "framework": None, "search_algorithm": None, "runtimes": []},
                "invalidity": _INVALID[outcome],
                "correctness": int(outcome == "ok"),
                "measurements": measurements,
                "objectives": ["predicted_us"],
            }
        )
    return {"schema_version": "1.0.0", "results": rows}
