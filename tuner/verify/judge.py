"""Verdicts on the kernels of a class: the emulator's, then the device's where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.devices.device import Code
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate

from .verifier import DeviceVerifier
from .verify import Verdict, verify

#: A candidate that is to be executed: its binary, its code, and a workload of its class and epilogue.
Pick = tuple[Candidate, Binary, Code, Workload]


class Judge:
    """Executes candidates once each; `verdicts` holds what came of it by the candidates' names, the last one decides.

    `recorded(candidate, binary, workload)` gives the verdict by which a database already rejects that kernel.
    """

    def __init__(
        self,
        jobs: int,
        verifier: DeviceVerifier | None,
        recorded: Callable[[Candidate, Binary, Workload], Verdict | None],
        progress: Callable[[str, int], None],
    ):
        self.jobs, self.verifier, self.recorded, self.progress = jobs, verifier, recorded, progress
        self.verdicts: dict[str, tuple[Verdict, ...]] = {}

    def passed(self, name: str) -> bool:
        """Whether a candidate was executed with right results everywhere."""
        found = self.verdicts.get(name, ())
        return bool(found) and found[-1].outcome == "ok"

    def judge(self, picks: Mapping[str, Pick]) -> None:
        """Execute those that have no verdict yet."""
        todo = {}
        for name, (each, binary, code, workload) in picks.items():
            if name in self.verdicts:
                continue
            known = self.recorded(each, binary, workload)
            if known is None:
                todo[name] = (each, code, workload)
            else:
                self.verdicts[name] = (known,)
        with ThreadPoolExecutor(self.jobs) as threads:
            # g++ and the emulator both run outside the interpreter's lock.
            found = threads.map(lambda pick: verify(pick[0], pick[2]), todo.values())
            for (name, pick), verdict in zip(todo.items(), found, strict=True):
                self.verdicts[name] = (verdict,)
                if verdict.outcome == "ok" and self.verifier is not None:
                    self.verdicts[name] = verdict, self.verifier.verify(*pick)
                self.progress("verify", 1)
