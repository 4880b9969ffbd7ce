"""The candidates of one class: Programs that may share binaries, and their predicted times on each workload."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.devices.device import Code
from gensor_kernels.families.contraction import stream_k
from gensor_kernels.families.core import params
from gensor_kernels.families.core.family import Family
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.source import bind, digest
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, SM_L2_BYTES, SUBCORES, Terms
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload

from .cover import CLEAN, PLAIN, cover, preferring, regrets

FEWEST, PER_WORKLOAD = 3, 2  # finalists of a class: 3, plus 2 per workload, up to the run's limit
F = np.float32
#: Number of `features`.
COUNT = 24
#: Stands for no multiplication in the ratios of copies: above it, every ratio is a float32.
LEAST = F(1e-30)


@dataclass(frozen=True)
class Candidate:
    """A Program with its compile-time constants: the unit that is compiled, verified and stored."""

    program: Program
    constants: str  # canonical JSON

    @cached_property
    def family(self) -> Family:
        """The Program's family."""
        return FAMILIES[self.program.family]

    @cached_property
    def name(self) -> str:
        """Sort key, and identity across runs."""
        return f"{self.program.to_json()} {self.constants}"

    def source(self) -> str:
        """Return the source text for both compilers."""
        return bind(self.family.text, json.loads(self.constants))

    def code(self, target: str, cubin: bytes) -> Code:
        """Return what a device loads, compiled for a target."""
        name = digest(f"{self.constants} {target} {self.family.source}")
        return Code(name, self.family.text, tuple(sorted(json.loads(self.constants).items())), target, cubin)

    def params(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        addresses: Sequence[int],
        workspace: int,
        steps: Sequence[params.Step],
        integer_steps: int,
    ) -> bytes:
        """Return the packed Params of one launch; `addresses`: of the inputs in order, then the output."""
        geometry = operator(workload.operator).geometry(workload, strides)
        *inputs, output = addresses
        pointers = params.pointers(geometry, inputs, output, workspace)
        tiling = self.family.tiling(self.program, geometry)
        return params.pack(geometry, tiling, steps=steps, integer_steps=integer_steps, pointers=pointers)

    @property
    def main_loop(self) -> Hashable:
        """A key that is equal for Programs that differ only in their epilogue route."""
        return self.family.main_loop(self.program)

    @property
    def fixes_epilogue(self) -> bool:
        """Whether one epilogue is compiled in; otherwise the epilogue is data, and the binary serves any."""
        return bool(json.loads(self.constants).get("EPILOGUE_CODES"))

    @property
    def entry(self) -> str:
        """Entry point of the main launch, whose registers and hot loop are reported."""
        return self.program.family


def candidate(family: Family, program: Program, workload: Workload) -> Candidate:
    """Return the candidate of a Program for a workload; a compile-time epilogue is part of its constants."""
    constants = json.dumps(family.constants(program, workload), sort_keys=True, separators=(",", ":"))
    return Candidate(program, constants)


class Pool:
    """Candidates and workloads of one class, with the matrix of predicted seconds."""

    def __init__(self, workloads: Sequence[Workload]):
        self.workloads = list(workloads)
        self.candidates: list[Candidate] = []
        self.dead: dict[str, str] = {}  # name -> why it must not be used
        self.origin: dict[Program, Program] = {}  # sibling -> the Program it was derived from
        self._names: set[str] = set()
        self._wide: set[str] = set()
        self._constants: dict[tuple[Program, tuple[str, ...]], str] = {}
        #: columns and points by lattice coordinates, which workloads of a class may share
        self._points: dict[Hashable, tuple[np.ndarray, np.ndarray]] = {}
        #: every candidate under all arguments that divide k, and the column of each one's candidate
        self._launches: tuple[Pool, np.ndarray] | None = None
        #: legal columns and their points, by lattice
        self._placed: WeakKeyDictionary[FamilySpace, tuple[np.ndarray, np.ndarray]] = WeakKeyDictionary()

    def add(self, space: Space, programs: Iterable[Program], siblings: bool = True) -> None:
        """Add Programs found for the workload of `space`, and siblings with wider accesses or for any epilogue."""
        families = {family.family.name: family.family for family in space.families}
        for program in programs:
            family = families[program.family]
            widest = family.widest(program, space.workload)
            kin = (program, widest, family.shared(program), family.shared(widest)) if siblings else (program,)
            for each in dict.fromkeys(kin):
                found = candidate(family, each, space.workload)
                if found.name not in self._names:
                    self._names.add(found.name)
                    self.candidates.append(found)
                    self.origin.setdefault(each, program)
                if each == family.widest(each, space.workload):
                    self._wide.add(found.name)
        self.candidates.sort(key=lambda each: each.name)
        self._points.clear()
        self._placed.clear()
        self._launches = None

    @property
    def wide(self) -> np.ndarray:
        """Mask of candidates with the widest accesses (candidates,): not all costs of others are modelled."""
        return np.array([each.name in self._wide for each in self.candidates], bool)

    @property
    def plain(self) -> np.ndarray:
        """Mask of candidates whose blocks wait for no other block (candidates,)."""
        return np.array([not stream_k.blocks_of(each.program) for each in self.candidates], bool)

    @property
    def names(self) -> list[str]:
        """Names of the candidates, ascending."""
        return [each.name for each in self.candidates]

    def seconds(self, spaces: Sequence[Space]) -> np.ndarray:
        """Return predicted seconds (workloads, candidates); inf where a candidate cannot serve, or is dead."""
        matrix = np.full((len(spaces), len(self.candidates)), np.inf)
        for row, space in zip(matrix, spaces, strict=True):
            for family, columns, points in self._legal(space, self.alive):
                row[columns] = family.potential(points)
        return matrix

    def relaunch_seconds(self, spaces: Sequence[Space]) -> np.ndarray:
        """Return `seconds` of candidates launched with k divided in the best of all ways (see Family.resplit)."""
        if self._launches is None:
            pool, owners = Pool(self.workloads), []
            for column, each in enumerate(self.candidates):
                programs = each.family.resplit(each.program, self.workloads[0], spaces[0].arch)
                pool.candidates += [replace(each, program=program) for program in programs]
                owners += [column] * len(programs)
            self._launches = pool, np.array(owners, np.intp)
        launches, owner = self._launches
        matrix = np.full((len(self.candidates), len(spaces)), np.inf)
        np.minimum.at(matrix, owner, launches.seconds(spaces).T)
        matrix[~self.alive] = np.inf
        return matrix.T

    def issued(self, spaces: Sequence[Space], compiled: np.ndarray) -> np.ndarray:
        """Return the clocks in which warps issue (workloads, candidates), see roofline; inf outside `compiled`."""
        matrix = np.full((len(spaces), len(self.candidates)), np.inf)
        for row, space in zip(matrix, spaces, strict=True):
            for family, columns, points in self._legal(space, compiled):
                row[columns] = roofline.issued(family.terms(points))
        return matrix

    @property
    def alive(self) -> np.ndarray:
        """Mask of candidates that are not dead (candidates,)."""
        return np.array([each.name not in self.dead for each in self.candidates], bool)

    def _legal(self, space: Space, alive: np.ndarray) -> Iterator[tuple[FamilySpace, np.ndarray, np.ndarray]]:
        """Yield each family's columns that are legal for the workload and in the mask `alive`, with their points."""
        for family in space.families:
            if family not in self._placed:
                self._placed[family] = self._places(family)
            columns, points = self._placed[family]
            living = alive[columns]
            if living.any():
                yield family, columns[living], points[living]

    def _places(self, family: FamilySpace) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns that are legal on a lattice, and their points."""
        # With hundreds of workloads and thousands of candidates, points are looked up once per distinct lattice.
        key = family.family.name, family.coordinates, family.workload.epilogue
        if key not in self._points:
            mine = (c for c, each in enumerate(self.candidates) if each.program.family == family.family.name)
            found = {column: point for column in mine if (point := self._point(column, family)) is not None}
            points = np.array(list(found.values())).reshape(len(found), len(family.coordinates))
            self._points[key] = np.array(list(found), np.intp), points
        columns, points = self._points[key]
        legal = family.legal(points) if len(columns) else columns.astype(bool)
        return columns[legal], points[legal]

    def described(self, space: Space) -> tuple[np.ndarray, np.ndarray]:
        """Return predicted seconds on one workload (candidates,), inf as in `seconds`, and features (., candidates)."""
        seconds, found = np.full(len(self.candidates), np.inf), np.ones((COUNT, len(self.candidates)), np.float32)
        for family, columns, points in self._legal(space, self.alive):
            terms = family.terms(points)
            seconds[columns], found[:, columns] = roofline.seconds(terms, family.arch), features(terms, family.arch)
        return seconds, found

    def _point(self, column: int, family: FamilySpace) -> np.ndarray | None:
        """Return a candidate's point on a lattice; None without one, or where the epilogue needs another binary."""
        each = self.candidates[column]
        key = (each.program, family.workload.epilogue)
        if key not in self._constants:
            self._constants[key] = candidate(family.family, each.program, family.workload).constants
        if self._constants[key] != each.constants:
            return None
        try:
            return family.point(each.program)
        except (KeyError, ValueError):  # a value that this workload's lattice lacks
            return None


def finalists(pool: Pool, seconds: np.ndarray, top: int) -> list[int]:
    """Choose at most `top` columns with different main loops: half of them a cover, the rest the best of each stratum.

    Strata are combinations of family, instruction, split, stages and where a row is kept, so that compiler feedback
    covers more than one corner of the space. The number of finalists grows with the number of workloads.
    """
    top = min(top, FEWEST + PER_WORKLOAD * len(pool.workloads))
    ratio = regrets(seconds)
    mean = np.where(np.isfinite(ratio), np.minimum(ratio, 100.0), 100.0).mean(axis=0)
    ranked = sorted(range(len(pool.candidates)), key=lambda c: (round(float(mean[c]), 9), pool.candidates[c].name))
    chosen: dict[Hashable, int] = {}
    for column in cover(preferring(seconds, (pool.wide, CLEAN), (pool.plain, PLAIN)), pool.names)[: max(1, top // 2)]:
        chosen.setdefault(pool.candidates[column].main_loop, column)
    strata: dict[tuple, int] = {}
    for column in ranked:
        if np.isfinite(seconds[:, column]).any():
            strata.setdefault(_stratum(pool.candidates[column].program), column)
    for column in [*strata.values(), *ranked]:
        if len(chosen) >= top:
            break
        if np.isfinite(seconds[:, column]).any():
            chosen.setdefault(pool.candidates[column].main_loop, column)
    return list(chosen.values())


def _stratum(program: Program) -> tuple:
    values = program.by_name
    divided = values.get("split_k", 1) > 1, values.get("stream", 0) > 0
    return program.family, *divided, *map(values.get, ("instruction", "stages", "keep"))


def features(terms: Terms, arch: Arch) -> np.ndarray:
    """Return the features of Programs on a part, (features, n) float32.

    First the clocks of an iteration for arithmetic, shared memory, L2 and DRAM as in `roofline.seconds`, divided by the
    largest of them; then those of one block alone and the sum of the first three; the rest are terms and their ratios.
    """
    t = terms
    pipe = np.maximum(t.math, t.multiplies + t.issue)
    quarter = np.ceil(t.warps * F(1 / SUBCORES)) * pipe
    resident_warps = t.residents * t.warps
    compute = np.ceil(resident_warps * F(1 / SUBCORES)) * pipe
    shared = t.residents * t.wavefronts * F(128 / arch.smem_bytes_per_clk)
    running = t.residents * F(arch.sms)
    l2 = t.l2_bytes * np.maximum(t.residents * F(1 / SM_L2_BYTES), running * F(1 / arch.l2_bytes_per_clk))
    dram_clk = arch.dram_gb_s * DRAM_EFFICIENCY / arch.clock_ghz
    dram = running * t.dram_bytes / (t.blocks * t.iterations) * F(1 / dram_clk)
    over = 1 / np.maximum(np.maximum(compute, shared), np.maximum(l2, dram))
    rounds = t.blocks / running
    per_multiply, products = 1 / np.maximum(t.multiplies, LEAST), np.maximum(t.math, LEAST)
    columns = (
        *(compute * over, shared * over, l2 * over, dram * over, (quarter + t.chain) * over),
        (compute + shared + l2) * over,
        *(t.issue * per_multiply, t.issue / products, t.warps, t.residents, resident_warps),
        *(t.registers, t.shared_bytes),
        *(t.chain / quarter, t.math, t.wavefronts / t.warps, t.wavefronts / t.warps * per_multiply),
        *(rounds, np.ceil(rounds) / rounds, t.l2_bytes, t.blocks, t.issue, t.dram_bytes),
        t.epilogue_busy / (products * t.iterations),
    )
    return np.stack([np.broadcast_to(column, t.blocks.shape) for column in columns]).astype(F)
