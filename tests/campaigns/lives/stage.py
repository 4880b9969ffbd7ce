"""A folder with shapes files and databases in several states, and lives that start from them."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .checks import JOURNALS, read_reports
from .lives import Action, Gate, Life, Zygote

SHAPES = """name,op,shape,dtype
first,relu,64,fp32
second,relu,96,fp32
third,reduce_sum,8x64,fp32
"""
MORE = SHAPES + "fourth,relu,128,fp32\n"


@dataclass
class Stage:
    """`play` gives a life in a folder that starts as one of the states below."""

    zygote: Zygote
    folder: Path
    states: dict[tuple[str, str], Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "shapes.csv").write_text(SHAPES)
        (self.folder / "more.csv").write_text(MORE)
        (self.folder / "warm").mkdir()
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
        """A copy of a state to play in."""
        folder = self.folder / "play"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.states[state, journal], folder)
        return folder

    @property
    def output(self) -> Path:
        """What `--json` of the last life wrote."""
        return self.folder / "out.json"

    def arguments(self, act: str, folder: Path, shapes: str = "shapes.csv") -> list[object]:
        """The command line of an act."""
        if act == "merge":
            return ["merge", self.folder / "other" / "kernels.db", "--binaries", "--db", folder / "kernels.db"]
        options = ["--arch", "sm_87", "--shapes", self.folder / shapes, "--top", 1, "--jobs", 1]
        return [*options, "--db", folder / "kernels.db", "--json", self.output]

    def play(self, act: str, journal: str, folder: Path, shapes: str = "shapes.csv", **gate: object) -> Life:
        """A life of an act in a folder."""
        self.output.unlink(missing_ok=True)
        made = Gate(folder, acknowledgements=self.output, **gate)
        return self.zygote.life(made, "cli", journal, *self.arguments(act, folder, shapes))

    def lines(self) -> list[dict]:
        """The rows that the last life reported."""
        return read_reports(self.output)


def points(log: Path, calls: int) -> Iterator[tuple[int, Action]]:
    """Where a life can be killed: before each call, and within or just after each that changed something."""
    changing = {int(fields[4]) for fields in changes(log) if fields[0] not in ("open", "acknowledge")}
    for number in range(1, calls + 1):
        yield number, Action.KILL
        if number in changing:
            yield number, Action.TEAR


def changes(log: Path) -> Iterator[tuple[str, str, int, int, int, bytes]]:
    """The entries of a gate's log: what, file, two numbers, the call's number, data."""
    with log.open("rb") as file:
        while line := file.readline():
            what, path, first, second, number, size = line.decode().split()
            yield what, path, int(first), int(second), int(number), file.read(int(size))
