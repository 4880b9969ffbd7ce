"""Processes that are killed, or whose disk fails, at a chosen system call on a database's folder; see gate.c."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from tests.conftest import ROOT

from .checks import JOURNALS, read_reports

SHAPES = """name,op,shape,dtype
first,relu,64,fp32
second,relu,96,fp32
third,reduce_sum,8x64,fp32
"""
MORE = SHAPES + "fourth,relu,128,fp32\n"


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


class Zygote:
    """A process that forks lives and reports their ends."""

    def __init__(self, folder: Path):
        self.folder, gate = folder, folder / "gate.so"
        command = ["g++", "-x", "c", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(gate)]
        subprocess.run([*command, str(Path(__file__).with_name("gate.c")), "-ldl"], check=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.lives.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            # One time for all rows: a life repeats another call by call.
            env={**os.environ, "LD_PRELOAD": str(gate), "SOURCE_DATE_EPOCH": "1700000000"},
        )

    def warm(self, scene: str, *arguments: object) -> None:
        """Play a scene in the zygote itself, whose walks and compilations the lives inherit."""
        assert self._ask({"warm": True, "scene": scene, "arguments": [str(each) for each in arguments]}) == {}

    def life(self, gate: Gate, scene: str, *arguments: object) -> Life:
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
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@dataclass
class Stage:
    """A folder with shapes files and databases in several states, from which lives start."""

    zygote: Zygote
    folder: Path
    states: dict[tuple[str, str], Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "shapes.csv").write_text(SHAPES)
        (self.folder / "more.csv").write_text(MORE)
        (self.folder / "warm").mkdir()
        self.output = self.folder / "out.json"  # what `--json` of the last life wrote
        self.zygote.warm("cli_to_its_end", *self.arguments("tune", self.folder / "warm", "more.csv"))
        for journal in JOURNALS:
            for name in ("empty", "tuned", "stocked", "absent"):
                self.states[name, journal] = self.folder / f"{name}-{journal}"
                self.states[name, journal].mkdir()
            assert self.play("tune", journal, self.states["tuned", journal]).code == 0
            stocked = self.states["stocked", journal]
            assert self.zygote.life(Gate(stocked), "stocked", journal, stocked / "kernels.db").code == 0
        self.zygote.warm("program", "wal", self.folder / "warm" / "kernels.db")  # builds for the emulator
        shutil.copytree(self.states["tuned", "wal"], self.folder / "other")

    def fresh(self, state: str, journal: str) -> Path:
        folder = self.folder / "play"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.states[state, journal], folder)
        return folder

    def arguments(self, act: str, folder: Path, shapes: str = "shapes.csv") -> list[object]:
        if act == "merge":
            return ["merge", self.folder / "other" / "kernels.db", "--binaries", "--db", folder / "kernels.db"]
        options = ["--arch", "sm_87", "--shapes", self.folder / shapes, "--top", 1, "--jobs", 1]
        return [*options, "--db", folder / "kernels.db", "--json", self.output]

    def play(self, act: str, journal: str, folder: Path, shapes: str = "shapes.csv", **gate: object) -> Life:
        self.output.unlink(missing_ok=True)
        made = Gate(folder, acknowledgements=self.output, **gate)
        return self.zygote.life(made, "cli", journal, *self.arguments(act, folder, shapes))

    def lines(self) -> list[dict]:
        return read_reports(self.output)


def points(log: Path, calls: int) -> Iterator[tuple[int, Action]]:
    """Yield where a life can be killed: before each call, and within or just after each that changed something."""
    changing = {int(fields[4]) for fields in changes(log) if fields[0] not in ("open", "acknowledge")}
    for number in range(1, calls + 1):
        yield number, Action.KILL
        if number in changing:
            yield number, Action.TEAR


def changes(log: Path) -> Iterator[tuple[str, str, int, int, int, bytes]]:
    """Yield the entries of a gate's log: what, file, two numbers, the call's number, data."""
    with log.open("rb") as file:
        while line := file.readline():
            what, path, first, second, number, size = line.decode().split()
            yield what, path, int(first), int(second), int(number), file.read(int(size))
