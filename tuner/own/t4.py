"""Results in the format T4 of the auto-tuning community (https://github.com/AutoTuningAssociation), schema 1.0.0."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from gensor_database.record import now
from gensor_kernels.own.description import Value

from .verify import Verdict

_INVALID = {"ok": "correct", "wrong": "correctness", "failed": "runtime"}


def results(finalists: Iterable[tuple[dict[str, Value], Verdict, float | None]]) -> dict[str, object]:
    """Return the JSON of finalists, each with knobs, verdict and predicted microseconds."""
    stamp = datetime.fromtimestamp(now(), timezone.utc).isoformat()
    rows = []
    for knobs, verdict, predicted in finalists:
        measurements = [] if predicted is None else [{"name": "predicted_us", "value": predicted, "unit": "us"}]
        rows.append(
            {
                "timestamp": stamp,
                "configuration": knobs,
                "times": {"compilation_time": None, "framework": None, "search_algorithm": None, "runtimes": []},
                "invalidity": _INVALID[verdict.outcome],
                "correctness": int(verdict.outcome == "ok"),
                "measurements": measurements,
                "objectives": ["predicted_us"],
            }
        )
    return {"schema_version": "1.0.0", "results": rows}
