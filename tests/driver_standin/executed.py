"""Launches executed from what reached the driver, as JSON: `python -m tests.driver_standin.executed FORMS [NAME]`.

FORMS is a file of pickled Forms, NAME that of a Form in which bugs are planted.
"""

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

from tests.driver_standin.runtime import installed

runtime = installed()

import cupy  # noqa: E402

from gensor_kernels.dispatch.selection import library  # noqa: E402
from gensor_kernels.families.registry import FAMILIES  # noqa: E402
from gensor_tuner.build.pool import candidate  # noqa: E402
from gensor_tuner.verify.on_device import verify_on  # noqa: E402
from tests.driver_standin.forms import Form  # noqa: E402
from tests.driver_standin.host_device import HostDevice, PassedError  # noqa: E402
from tests.driver_standin.planted import BUGS  # noqa: E402


def execute(form: Form) -> dict[str, object]:
    """Verify one Form at its verification cases; `calls` counts functions of the driver."""
    device = HostDevice(form.part, runtime)
    code = library.generate(form.program, form.workload, device.arch).code
    try:
        chosen = candidate(FAMILIES[form.family], form.program, form.workload)
        verdict = verify_on(device, chosen, replace(code, cubin=form.cubin), form.workload)
        outcome, detail, cases, worst = verdict.outcome, verdict.detail, len(verdict.sizes), verdict.worst
    except PassedError as error:
        outcome, detail, cases, worst = "other bytes", str(error), 0, 0.0
    found = {"name": form.name, "family": form.family, "form": form.words, "part": form.part, "outcome": outcome}
    return {**found, "detail": detail, "cases": cases, "worst": round(worst, 3), "calls": device.calls()}


def execute_with_bugs(form: Form) -> dict[str, str]:
    found = {}
    for name, bug in BUGS.items():
        with bug():
            line = execute(form)
        found[name] = f"{line['outcome']}: {line['detail']}"
    return found


if __name__ == "__main__":
    forms = pickle.loads(Path(sys.argv[1]).read_bytes())
    planted = {form.name: execute_with_bugs(form) for form in forms if form.name in sys.argv[2:]}
    print(json.dumps({"cupy": cupy.__version__, "forms": [execute(form) for form in forms], "planted": planted}))
