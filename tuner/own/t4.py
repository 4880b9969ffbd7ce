"""Results in the format T4 of the auto-tuning community (https://github.com/AutoTuningAssociation), schema 1.0.0."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gensor_database.record import now

if TYPE_CHECKING:
    from gensor_kernels.own.description import Value

    from .tune import Best
    from .verify import Verdict

_INVALID = {"ok": "correct", "wrong": "correctness", "failed": "runtime"}


def results(best: Best) -> dict[str, object]:
    """Return the JSON of all finalists; `predicted_us` is a prediction, named as one."""
    stamp = datetime.fromtimestamp(now(), timezone.utc).isoformat()
    finalists: list[tuple[dict[str, Value], Verdict, float | None]]
    finalists = [(each.knobs, each.verdict, each.predicted_us) for each in best.found]
    finalists += [(knobs, verdict, None) for knobs, verdict in best.failed]
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
