"""What may be done about a call that nothing good is stored for: the one place where calls tier up.

`improve` is asked once per new kind of call, before its Plan is made. It tunes where `GENSOR_TUNE=now` asks for it,
but not inside graph capture.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .. import config
from ..errors import ConfigError
from ..machine.arch import Arch
from ..operators.workload import Workload
from .library import Library
from .tiers import Choice, Request, choose

WORKER = (sys.executable, "-m", "gensor_tuner.worker")
#: Seconds one tuning may take before the call goes on without it; a new class takes about eight.
PATIENCE = 300.0


def improve(request: Request, choice: Choice, library: Library, tried: set[str]) -> Choice:
    """The choice after whatever the settings allow; `tried` remembers the Workloads that were tuned already.

    `GENSOR_DETERMINISTIC` allows nothing: the kernel must follow from call, device and databases alone.
    """
    workload = request.problem.workload
    known = choice.tier in (1, 2) or workload.key() in library.contents.records or library.timings(workload)
    if config.tune_mode() != "now" or config.deterministic() or request.captured or known:
        return choice
    key = workload.key()
    if key in tried:
        return choice
    tried.add(key)
    if not tune(workload, request.arch):
        return choice
    library.reload()
    return choose(request, library)


def tune(workload: Workload, arch: Arch) -> bool:
    """Tunes one Workload in a worker process, into the user's database; False, and a warning, where that failed.

    A process of its own: a bad candidate must not take the caller's CUDA context with it.
    """
    try:
        database = config.user_database()
    except ConfigError as error:
        config.logger().warning("tuning needs a database to write to: %s", error)
        return False
    request = {"workload": json.loads(workload.key()), "arch": arch.part, "db": str(database)}
    try:
        done = subprocess.run(
            WORKER,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "GENSOR_TUNE": "off"},
        )
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        config.logger().warning("tuning did not finish: %s", error)
        return False
    if answer.get("status") != "ok":
        config.logger().warning("tuning found no kernel: %s", answer.get("error"))
        return False
    return True
