"""Processes that are killed, or whose disk fails, at a chosen system call on a database's folder; see gate.c."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tests.conftest import ROOT

GATE = Path(__file__).with_name("gate.c")


class Action(IntEnum):
    """The fault at the chosen call; the numbers are those of gate.c."""

    COUNT = 0
    KILL = 1  # before it
    TEAR = 2  # after half of a write, or just after any other call that changes something
    ONCE = 3  # it fails
    FOREVER = 4  # it and all later ones fail


@dataclass(frozen=True)
class Gate:
    """The chosen call on `folder`, and its fault."""

    folder: Path
    at: int = 0
    action: Action = Action.COUNT
    failure: int = 0
    acknowledgements: Path | None = None
    log: Path | None = None

    def to_json(self) -> list:
        files = ["" if path is None else str(path) for path in (self.acknowledgements, self.log)]
        return [str(self.folder), *files, self.at, int(self.action), self.failure]


@dataclass(frozen=True)
class Life:
    """How a process ended: `code` as subprocess gives it, minus the signal's number where it was killed."""

    code: int
    stdout: str
    stderr: str
    calls: int | None  # on the folder; absent if the process was killed


def build_gate(folder: Path) -> Path:
    """The shared library, compiled."""
    target = folder / "gate.so"
    command = ["g++", "-x", "c", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(target), str(GATE), "-ldl"]
    subprocess.run(command, check=True)
    return target


class Zygote:
    """A process that forks lives and reports their ends."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.lives.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            # One time for all rows: a life repeats another call by call.
            env={**os.environ, "LD_PRELOAD": str(build_gate(folder)), "SOURCE_DATE_EPOCH": "1700000000"},
        )

    def warm(self, scene: str, *arguments: object) -> None:
        """Plays a scene in the zygote itself, whose walks and compilations the lives inherit."""
        assert self._ask({"warm": True, "scene": scene, "arguments": [str(each) for each in arguments]}) == {}

    def life(self, gate: Gate, scene: str, *arguments: object) -> Life:
        """One life of a scene."""
        (self.folder / "calls").unlink(missing_ok=True)
        request = {"scene": scene, "arguments": [str(each) for each in arguments], "gate": gate.to_json()}
        answer = self._ask({**request, "output": str(self.folder)})
        code = os.waitstatus_to_exitcode(answer["status"])
        said = [(self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        return Life(code, *said, answer.get("calls"))

    def _ask(self, request: dict) -> dict:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
