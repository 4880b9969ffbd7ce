"""The search space of a user's kernel: a lattice of its knobs, walked as those of this package's families are.

Every configuration is compiled and its blocks are executed before it has a predicted time, so walks are short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gensor_kernels.build.elf import code_sections
from gensor_kernels.build.nvrtc import Binary, compile_many
from gensor_kernels.build.parallel import ordered_map
from gensor_kernels.build.resources import instructions
from gensor_kernels.errors import BuildError, ConfigError, UnsupportedError
from gensor_kernels.families.core.family import LEVEL, Columns, Coordinate, Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.own.configuration import Configuration, Given, draw, entry_of
from gensor_kernels.own.description import NUMBER, UPDATED, Description, Value
from gensor_kernels.own.expressions import evaluate
from gensor_kernels.own.stored import FAMILY
from gensor_tuner.search.graph import Graph

from .counts import SECTOR, Counts, EndlessFault, Entry, Fault, Prepared, read_entry, sampled
from .potential import Counted, terms
from .verify import assigned

Progress = Callable[[str, int, int], None]
#: Configurations that are compiled, read and counted together.
BATCH = 16
#: Where none of this number of configurations ends, and none before them was counted, no further one is tried.
ENDLESS = 4


class OwnFamily(Family):
    """A user's kernel as a family: its knobs are coordinates, whole numbers with their values, others by number."""

    def __init__(self, description: Description, sizes: Mapping[str, int]):
        self.name = FAMILY
        self.description, self.sizes = description, dict(sizes)
        self.values = {knob: _codes(values) for knob, values in description.knobs}
        self.known = dict(description.knobs)

    def coordinates(self, workload: object, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the level, and a coordinate for every knob."""
        kinds = {knob: "tile" if isinstance(values[0], int) else "layout" for knob, values in self.known.items()}
        return (LEVEL, *(Coordinate(knob, values, 0, kinds[knob], "a knob") for knob, values in self.values.items()))

    def legal(self, columns: Columns, workload: object, arch: Arch) -> np.ndarray:
        """Return which configurations fulfil all restrictions, and have a block that can be launched."""
        names: dict[str, object] = dict(self.sizes)
        for knob in self.values:
            column = np.asarray(columns[knob])
            own = self.known[knob]
            if not isinstance(own[0], int):
                column = np.array(own, dtype=object if isinstance(own[0], str) else float)[column]
            names[knob] = column
        held = np.ones(len(np.asarray(columns[next(iter(self.values))])), bool)
        with np.errstate(all="ignore"):
            for text in self.description.restrictions:
                held &= np.asarray(evaluate(text, names), bool)
            block = [np.asarray(evaluate(text, names)) for text in self.description.block]
        threads = block[0] * block[1] * block[2]
        return held & (threads >= 1) & (threads <= arch.threads_per_block) & (block[2] <= 64)

    def defaults(self, columns: Columns, workload: object, arch: Arch) -> dict[str, np.ndarray]:
        """Return nothing: every knob is chosen at the first level."""
        return {}

    def starters(self, workload: object, arch: Arch) -> list[Program]:
        """Return nothing: a user's kernel has no known good configurations."""
        return []

    def knobs(self, program: Program) -> tuple[tuple[str, Value], ...]:
        """Return the values of a Program's knobs."""
        return tuple(
            (knob, program[knob] if isinstance(own[0], int) else own[program[knob]]) for knob, own in self.known.items()
        )


def _codes(values: Sequence[Value]) -> tuple[int, ...]:
    return (
        tuple(each for each in values if isinstance(each, int))
        if isinstance(values[0], int)
        else tuple(range(len(values)))
    )


@dataclass(frozen=True)
class Built:
    """A configuration that compiles, its entry, and what its launch does."""

    configuration: Configuration
    binary: Binary
    entry: Entry
    counted: Counted


class OwnSpace(FamilySpace):
    """The configurations of a user's kernel at some sizes, for a part."""

    def __init__(
        self,
        description: Description,
        source: str,
        sizes: Mapping[str, int],
        arch: Arch,
        count_at: Mapping[str, int] | None = None,
        jobs: int | None = None,
        progress: Progress | None = None,
        budget: int = 0,
    ):
        self.own = OwnFamily(description, sizes)
        super().__init__(self.own, None, arch)  # type: ignore[arg-type]
        self.description, self.source, self.sizes = description, source, dict(sizes)
        self.count_at, self.jobs, self.progress, self.budget = dict(count_at or sizes), jobs, progress, budget
        self.built: dict[Program, Built] = {}
        self.counted: dict[Program, Counted] = {}
        self.refused: dict[Program, str] = {}
        self.faults: list[Configuration] = []  # compiled, and refused when they were executed to be counted
        self._endless = 0
        self._prepared: dict[str, Prepared] = {}
        self._counts: dict[object, Counts] = {}
        self._arrays: dict[object, tuple[list[Given], dict[str, np.ndarray]]] = {}

    @property
    def families(self) -> tuple[OwnSpace]:
        """The one lattice, as walks take them."""
        return (self,)

    def start(self) -> np.ndarray:
        """Return the point of all least values; UnsupportedError where it is not legal."""
        point = np.zeros((1, len(self.coordinates)), np.int64)
        if not self.legal(point)[0]:
            raise UnsupportedError("the least values of all knobs are no configuration")
        return point[0]

    def potential(self, points: np.ndarray) -> np.ndarray:
        """Return predicted seconds: infinite for what does not compile, or cannot be launched."""
        return self.predicted([self.program(point) for point in self.complete(np.asarray(points))])

    def predicted(self, programs: Sequence[Program]) -> np.ndarray:
        """Return predicted seconds, as `potential` does; configurations are compiled and counted once."""
        new = [each for each in dict.fromkeys(programs) if each not in self.counted and each not in self.refused]
        for first in range(0, len(new), BATCH):
            self.build(new[first : first + BATCH])
            if self.progress is not None:
                done = len(self.counted) + len(self.refused)
                self.progress("configurations", done, max(self.budget, done))
        seconds = np.full(len(programs), np.inf)
        known = [place for place, each in enumerate(programs) if each in self.counted]
        if known:
            found = self.counts([programs[place] for place in known])
            seconds[known] = np.where(found.residents >= 1, roofline.seconds(found, self.arch), np.inf)
        return seconds

    def counts(self, programs: Sequence[Program]) -> roofline.Terms:
        """Return the terms of configurations that are counted."""
        return terms([self.counted[each] for each in programs], self.arch)

    def around(self, program: Program) -> list[Program]:
        """Return the neighbours of a configuration in the construction graph."""
        whole = Graph(self).edges(np.asarray(self.point(program))[None]).whole
        return list(dict.fromkeys(map(self.program, whole)))

    def enumerated(self, most: int) -> list[np.ndarray] | None:
        """Return all legal points where they are at most `most`, else None."""
        found: list[np.ndarray] = []
        for points in self.enumerate():
            found.extend(points)
            if len(found) > most:
                return None
        return found

    def build(self, programs: Sequence[Program]) -> None:
        """Compile and count configurations: each is then in `counted`, or in `refused` with the reason."""
        made = [
            Configuration(self.description, self.source, self.own.knobs(each), self.arch.target) for each in programs
        ]
        binaries = compile_many([(each.text, self.arch.target) for each in made], self.jobs)
        compiled = [each for each in zip(programs, made, binaries, strict=True) if not each[2].error]
        for program, _, binary in zip(programs, made, binaries, strict=True):
            if binary.error:
                self.refused[program] = _first_error(binary.log) or binary.error
        read = instructions([binary.cubin for *_, binary in compiled], self.arch.target) if compiled else []
        todo = []
        for (program, configuration, binary), functions in zip(compiled, read, strict=True):
            try:
                todo.append((program, self._ready(configuration, binary, functions)))
            except (BuildError, ConfigError) as error:
                self.refused[program] = str(error)
        for first in range(0, len(todo), ENDLESS):
            self._count_some(todo[first : first + ENDLESS])

    def _count_some(self, todo: Sequence[tuple[Program, _Ready]]) -> None:
        results = ordered_map(self._count, [each for _, each in todo], self.jobs)
        for (program, ready), result in zip(todo, results, strict=True):
            if isinstance(result, Built):
                self.built[program], self.counted[program] = result, result.counted
            elif isinstance(result, EndlessFault):
                self.refused[program] = f"with {assigned(dict(self.own.knobs(program)))} {result}"
                self._endless += 1
            else:
                self.refused[program] = str(result)
                if isinstance(result, Fault):
                    self.faults.append(ready.configuration)
        if self._endless >= ENDLESS and not self.counted:
            raise BuildError(f"{self.description.name} {self.refused[todo[0][0]]}")

    def _ready(self, configuration: Configuration, binary: Binary, functions: Mapping | None) -> _Ready:
        if functions is None:
            raise UnsupportedError("nvdisasm is missing, or cannot read this target: install nvidia-cuda-nvdisasm")
        sections = dict(code_sections(binary.cubin) or ())
        name = entry_of(self.description.name, list(sections))
        digest = hashlib.sha256(sections[name]).hexdigest()
        if digest not in self._prepared:
            self._prepared[digest] = Prepared(read_entry(binary.cubin, name, functions[name]), self.arch)
        names = {**dict(configuration.knobs), **self.sizes}
        self.description.launch(names)
        return _Ready(configuration, binary, self._prepared[digest], digest)

    def _count(self, ready: _Ready) -> Built | Fault | ConfigError:
        described, knobs = self.description, dict(ready.configuration.knobs)
        named = {**knobs, **self.sizes}
        entry = ready.prepared.entry
        try:
            grid, block, shared = described.launch(named)
            warps, registers = -(-int(np.prod(block)) // 32), ready.binary.entries[entry.name].registers
            shared_bytes = entry.shared_bytes + shared
            held = np.array([[warps], [registers], [shared_bytes]], np.float32)
            resident = float(roofline.residency(held[0], held[1], held[2], self.arch)[0])
            counts = self._extended(ready, knobs)
            # Where blocks that run side by side read more than the L2 holds, they find there nothing of earlier ones:
            # all of them read a line for the first time together.
            read = min(resident * self.arch.sms, float(np.prod(grid))) * counts.read * SECTOR
            if read > self.arch.l2_mb * 1e6:
                counts = replace(counts, clocks=counts.clocks_from_dram)
            counts = counts.at(int(np.prod(grid)))
        except (Fault, ConfigError) as error:
            return error
        arrays = [each for each in described.arguments if each.role != NUMBER]
        moved = [float(np.prod(each.extents(named))) * np.dtype(each.dtype).itemsize for each in arrays]
        again = [size for each, size in zip(arrays, moved, strict=True) if each.role == UPDATED]
        launch = {"warps": warps, "registers": registers, "shared_bytes": shared_bytes}
        counted = Counted.of(counts, entry.code, **launch, array_bytes=int(sum(moved + again)))
        return Built(ready.configuration, ready.binary, entry, counted)

    def _extended(self, ready: _Ready, knobs: Mapping[str, Value]) -> Counts:
        """Return the counts of a block at the tuned sizes: counted at smaller ones, and linear in each size.

        Where all blocks did the same at the smaller sizes, one block says how they depend on a size.
        """
        first = found = self._counted_at(ready, {**knobs, **self.count_at})
        for name, size in self.sizes.items():
            less = self.count_at[name]
            more = min(2 * less, size)
            if more > less:
                longer = self._counted_at(ready, {**knobs, **self.count_at, name: more}, one=first.alike)
                found = found.plus(longer.plus(first, -1.0), (size - less) / (more - less))
        return found

    def _counted_at(self, ready: _Ready, names: Mapping[str, Value], one: bool = False) -> Counts:
        grid, block, shared = self.description.launch(names)
        arguments, constants = self._drawn(names)
        numbers = tuple(each for each in arguments if isinstance(each, bytes))
        key = (ready.digest, grid, block, shared, numbers, one)
        if key not in self._counts:
            chosen = sampled(grid)
            if one:
                chosen = {max(chosen, key=lambda number: chosen[number]): float(np.prod(grid))}
            found = ready.prepared.count(grid, block, arguments, constants, shared, chosen)
            self._counts[key] = found.at(1)
        return self._counts[key]

    def _drawn(self, names: Mapping[str, Value]) -> tuple[list[Given], dict[str, np.ndarray]]:
        """Return arguments, drawn once for each of their shapes; other configurations may have written to them."""
        described = self.description
        key = tuple(
            each.extents(names) if each.role != "scalar" else each.number(names) for each in described.arguments
        )
        if key not in self._arrays:
            self._arrays[key] = draw(described, names, seed=0)
        return self._arrays[key]


@dataclass(frozen=True, eq=False)
class _Ready:
    configuration: Configuration
    binary: Binary
    prepared: Prepared
    digest: str


def _first_error(log: str) -> str:
    """Return the first error of a compiler's log, in one line with the text that it quotes."""
    lines = log.strip().splitlines()
    first = next((number for number, line in enumerate(lines) if "error" in line), None)
    if first is None:
        return log.strip()[:200]
    quoted = lines[first + 1].strip() if first + 2 < len(lines) and lines[first + 2].strip() == "^" else ""
    return f"{lines[first].strip()}{f', at {quoted!r}' if quoted else ''}"
