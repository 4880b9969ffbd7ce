"""The kernels of one Arch, in memory: what the tiers choose from. Nothing here is read by a warm call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Any

from gensor_database import Timing, counting, is_under, launched
from gensor_database.lazy import cached_property
from gensor_kernels import config, forking
from gensor_kernels.devices.device import Code
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import Roster
from gensor_kernels.families.core.source import digest
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

Form = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, int], ...]]
Sizes = tuple[tuple[str, int], ...]
#: Most buckets of sizes whose best kernels are kept, and most kernels of each.
MOST_BUCKETS, MOST_NEAR = 4096, 16


@dataclass(frozen=True)
class Kernel:
    """A Program compiled for a class: `serves` is a Workload of that class, whose sizes mean nothing.

    `read` gets its code, from a database or from the installed sources, when it is needed for the first time.  `base`
    is the digest of the stored kernel that is launched with other arguments here, or None of a stored kernel itself.
    """

    digest: str
    program: Program
    serves: Workload
    read: Callable[[], Code] = field(repr=False, compare=False)
    base: str | None = None

    @property
    def stored(self) -> str:
        """The digest of the kernel as it is stored, whatever the arguments of its launch."""
        return self.base or self.digest

    @property
    def form(self) -> Form:
        """Family, layouts and alignments: kernels of one form are predicted together."""
        return self.program.family, self.serves.layout, self.serves.alignment

    @cached_property
    def code(self) -> Code:
        """The code that a device loads."""
        return self.read()

    @cached_property
    def epilogue_codes(self) -> int | None:
        """The epilogue compiled into it, 0 where that is a list in Params, or None if its binary cannot be read, which
        alone names it."""
        if not self.program.get("epilogue_fixed"):
            return 0
        try:
            return int(dict(self.code.constants).get("EPILOGUE_CODES", 0))
        except BuildError as error:
            config.logger().warning("kernel %s is ignored: %s", self.digest[:12], error)
            return None

    @cached_property
    def demands(self) -> int:
        """The alignment that its class needs: among equal kernels, the one that needs most wastes least."""
        return sum(self.serves.align[name] for name, layout in self.serves.layouts.items() if layout != "s")

    def fits(self, workload: Workload) -> bool:
        """Return whether this binary computes `workload`: same types, layouts no more demanding, its epilogue."""
        return fits_class(self.serves, workload) and self.fits_epilogue(workload)

    def fits_epilogue(self, workload: Workload) -> bool:
        """Return whether this binary has the epilogue of `workload`, a Workload that its class fits."""
        codes = self.epilogue_codes
        if codes is None:
            return False
        return codes == 0 or codes == FAMILIES[self.program.family].constants(self.program, workload).get(
            "EPILOGUE_CODES"
        )

    def workload(self, wanted: Workload) -> Workload:
        """`wanted` as a Workload of this kernel's class: what to ask its Space about."""
        return wanted.stored_as(self.serves)

    def launches(self, wanted: Workload) -> Sequence[Launch]:
        """Return the launches for `wanted`, with the order of tiles of this kernel's class."""
        return FAMILIES[self.program.family].launches(self.program, self.workload(wanted))

    def workspace(self, wanted: Workload) -> tuple[int, bool]:
        """Return the bytes of the workspace for `wanted`, and whether they must be zero."""
        return FAMILIES[self.program.family].workspace(self.program, self.workload(wanted))


def types_of(workload: Workload) -> tuple[object, ...]:
    """Return the properties that Workloads served by one binary have in common."""
    return workload.operator, workload.dtypes, workload.accumulator, workload.math, workload.program


def fits_class(mine: Workload, workload: Workload) -> bool:
    """Return whether binaries for the class of `mine` may read and write the operands of `workload`."""
    return types_of(mine) == types_of(workload) and _reads(mine, workload)


def _reads(mine: Workload, workload: Workload) -> bool:
    """Return whether binaries for the class of `mine` take the layouts and alignments of `workload`."""
    if mine.conjugated != workload.conjugated:
        return False
    for name, layout in mine.layouts.items():
        same = layout == workload.layouts[name] and mine.align[name] <= workload.align[name]
        if not (same or layout == "s"):
            return False
    return True


def code(text: str, bound: Mapping[str, int | str], target: str, cubin: bytes = b"") -> Code:
    """Return the Code of a flattened source and the constants bound to it."""
    pairs = tuple(sorted(bound.items()))
    return Code(digest(repr((digest(text), pairs, target))), text, pairs, target, cubin)


def divide(kernel: Kernel, arch: Arch) -> list[Program]:
    """Return the Programs that divide k among blocks in all ways that a kernel's verification covers, its own first."""
    return FAMILIES[kernel.program.family].resplit(kernel.program, kernel.serves, arch)


def relaunch(kernel: Kernel, program: Program) -> Kernel:
    """Return the kernel with the launch arguments of another Program of its binary."""
    name = digest(repr((kernel.digest, program.to_json())))
    return replace(kernel, digest=name, program=program, read=lambda: kernel.code, base=kernel.digest)


def is_legal(kernel: Kernel, workload: Workload, arch: Arch) -> bool:
    """Return whether a kernel may run a Workload, whatever a database says that it has run."""
    if not kernel.fits(workload):
        return False
    family, wanted = FAMILIES[kernel.program.family], kernel.workload(workload)
    return family.serves(wanted, arch) is None and Roster(family, [kernel.program]).terms(wanted, arch)[1] is not None


def generate(program: Program, workload: Workload, arch: Arch) -> Kernel:
    """Return the kernel a Program is for a Workload, from the installed sources; not compiled yet."""
    family = FAMILIES[program.family]
    generated = code(family.text, family.constants(program, workload), arch.target)
    return Kernel(digest(repr((generated.digest, program.to_json()))), program, workload, lambda: generated)


@dataclass(frozen=True)
class Contents:
    """The contents of the stores for one Arch and part.

    `kernels` by digest; `records` and `timings` by Workload key: the kernel tuning chose, and every timing on this
    part, the array library's own included. `portfolio`: digests of the kernels that cover the sizes of their classes.
    `unsettled`: keys of records whose tuning did not end. `elsewhere`: keys of records for another part. `of`: reads
    the contents for a Workload's types, or for all types, where they are not here yet.
    """

    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, Sequence[Timing]] = field(default_factory=dict)
    portfolio: Collection[str] = frozenset()
    unsettled: Collection[str] = frozenset()
    elsewhere: Collection[str] = frozenset()
    of: Callable[[Workload | None], Contents] | None = None

    def joined(self, other: Contents) -> Contents:
        """Return these contents and those of other types."""
        return replace(
            self,
            kernels={**self.kernels, **other.kernels},
            records={**self.records, **other.records},
            timings={**self.timings, **other.timings},
            portfolio={*self.portfolio, *other.portfolio},
            unsettled={*self.unsettled, *other.unsettled},
            elsewhere={*self.elsewhere, *other.elsewhere},
        )


@dataclass(frozen=True)
class Shelf:
    """The kernels of one class, in the order of their digests: those of its portfolio, and the others."""

    serves: Workload
    portfolio: list[Kernel] = field(default_factory=list)
    others: list[Kernel] = field(default_factory=list)


def _with(contents: Contents, rows: Iterable[Timing]) -> Contents:
    """Return the same with more timings."""
    timings = dict(contents.timings)
    for row in rows:
        known = timings.get(row.key, ())
        if row.digest not in {each.digest for each in known}:
            timings[row.key] = [*known, row]
    return replace(contents, timings=timings)


def _shelved(
    contents: Contents,
) -> tuple[dict[tuple[object, ...], list[Shelf]], set[tuple[str, Program]]]:
    """Return the classes of kernels by types, and the stored Programs with the keys of their classes."""
    # Kernels of a class from a database share one Workload.
    serving = {id(each.serves): each.serves for each in contents.kernels.values()}
    keys = {number: each.class_key() for number, each in serving.items()}
    shelves: dict[str, Shelf] = {}
    for kernel in sorted(contents.kernels.values(), key=attrgetter("digest")):
        name = keys[id(kernel.serves)]
        if (shelf := shelves.get(name)) is None:
            shelf = shelves[name] = Shelf(kernel.serves)
        (shelf.portfolio if kernel.digest in contents.portfolio else shelf.others).append(kernel)
    by_types: dict[tuple[object, ...], list[Shelf]] = {}
    for shelf in shelves.values():
        by_types.setdefault(types_of(shelf.serves), []).append(shelf)
    return by_types, {(keys[id(each.serves)], each.program) for each in contents.kernels.values()}


class Library:
    """Kernels, records and timings of one Arch and part, indexed for the tiers.

    `read` reads the contents, and again after tuning, or after a database has changed.  With an `arch`, kernels of the
    portfolios are also launched with k divided among blocks in other ways than they were tuned with.  A `timeless` one
    takes in no timings.  `facts` are those of the stores, which change with them.
    """

    def __init__(
        self,
        contents: Contents | None = None,
        read: Callable[[], Contents] | None = None,
        arch: Arch | None = None,
        timeless: bool = False,
        facts: Callable[[], Hashable] | None = None,
    ):
        self.arch, self._timeless, self._facts = arch, timeless, facts
        self._read_at = facts and facts()
        #: kernels that are launched with other arguments, by their own digest; some may no longer be stored
        self._relaunched: dict[str, Kernel] = {}
        self._read = read or (lambda: self.contents)
        self._noted: dict[str, Timing] = {}
        self._refused: set[str] = set()
        #: a Workload of each of the types whose contents are here, where they are read by types; None for all types
        self._types: dict[tuple[object, ...] | None, Workload | None] = {}
        # The first is for reading the stores, the second for taking in what was read or measured.
        self._reading = forking.lock(self, "_reading", threading.Lock)
        self._taking = forking.lock(self, "_taking", threading.Lock)
        #: what new times are taken under; see Device.conditions
        self.conditions = "{}"
        self.contents: Contents = contents or Contents()
        self._take(contents or self._readable(self._read))

    def timeless(self) -> Library:
        """Return another Library of the same contents without timings."""
        with self._taking:
            found = Library(self.contents, self._read, self.arch, timeless=True, facts=self._facts)
            found._types, found._refused, found._read_at = dict(self._types), set(self._refused), self._read_at
            return found

    def include(self, workload: Workload | None) -> None:
        """Read what is stored for a Workload's types, or for all, if it was not read yet."""
        if self.contents.of is None or None in self._types:
            return
        types = types_of(workload) if workload is not None else None
        if types in self._types:
            return
        with self._reading:
            if types not in self._types and (of := self.contents.of) is not None:
                contents = self._readable(lambda: of(workload))
                with self._taking:
                    self._join(contents)
                    self._types[types] = workload

    def _take(self, contents: Contents) -> None:
        """Replace the contents. Other threads choose meanwhile: whole things take the places of whole things."""
        contents = self._usable(contents)
        self._shelves, self._programs_stored = _shelved(contents)
        self.contents = _with(contents, self._noted.values())
        #: another object after each change that can make another kernel the best
        self.epoch = object()
        #: Programs that a stored kernel can be launched as, by its digest
        self._divided: dict[str, list[Program]] = {}
        #: measured over predicted time by kernel digest, as far as anybody has asked; see predict.residual
        self.residuals: dict[str, float | None] = {}
        #: stored kernels that are predicted together, by the digest of each; see predict.predict
        self.groups: dict[str, Any] = {}
        self._near: dict[Hashable, tuple[Sizes, object, list[Kernel]]] = {}

    def _join(self, contents: Contents) -> None:
        """Add the contents of other types."""
        contents = self._usable(contents)
        shelves, programs = _shelved(contents)
        self._programs_stored = self._programs_stored | programs
        self.contents = _with(self.contents.joined(contents), self._noted.values())
        self._shelves = {**self._shelves, **shelves}

    def _usable(self, contents: Contents) -> Contents:
        """Return contents without kernels that were refused, and without timings where these must not count."""
        if self._timeless or config.always_deterministic():
            contents = replace(contents, timings={})
        refused = self._refused
        kept = {n: each for n, each in contents.kernels.items() if refused.isdisjoint((n, each.program.family))}
        return replace(contents, kernels=kept)

    def near(self, bucket: Hashable, sizes: Sizes) -> Sequence[Kernel]:
        """Return the stored kernels that are nearly best for other sizes of a bucket."""
        origin, epoch, kernels = self._near.get(bucket, (sizes, self.epoch, []))
        # A thread may have kept kernels of earlier contents just after these were taken in.
        return [] if origin == sizes or epoch is not self.epoch else kernels

    def keep_near(self, bucket: Hashable, sizes: Sizes, names: Iterable[str]) -> None:
        """Keep the stored kernels that are nearly best for some sizes for other sizes of their bucket."""
        if len(self._near) >= MOST_BUCKETS:
            self._near.clear()
        epoch, stored = self.epoch, self.contents.kernels
        kernels = [stored[name] for name in islice(names, MOST_NEAR) if name in stored]
        self._near[bucket] = sizes, epoch, kernels

    def reload(self) -> None:
        """Read the stores again."""
        with self._reading:  # what was read last is taken in last
            self._read_at = self._facts and self._facts()
            contents = self._readable(self._read_types)
            with self._taking:
                self._take(contents)

    def state(self) -> Hashable:
        """Return what another process has to find to choose from the same, but for the packaged database.

        None where the stores have changed since they were read, or something was measured or refused.
        """
        if self._facts is None or self._noted or self._refused or self._facts() != self._read_at:
            return None
        return self._read_at, self.conditions

    def _read_types(self) -> Contents:
        """Read the contents, those by types for all types that were needed so far."""
        contents = self._read()
        for workload in [None] if None in self._types else self._types.values():
            if contents.of is not None:
                contents = contents.joined(contents.of(workload))
        return contents

    def _readable(self, read: Callable[[], Contents]) -> Contents:
        """Return what is read, or what is known already if it cannot be read, because a call waits."""
        try:
            return read()
        except Exception as error:
            config.logger().warning("the databases cannot be read: %s", error, exc_info=True)
            return self.contents

    def note(self, rows: Iterable[Timing]) -> None:
        """Add timings that were measured just now. They outlast `reload`, stored or not."""
        with self._taking:
            new = {row.digest: row for row in rows}
            self._noted.update(new)
            self.contents = _with(self.contents, new.values())
            timed = {row.kernel_digest for row in new.values()}
            self.residuals = {name: value for name, value in list(self.residuals.items()) if name not in timed}
            self._near, self.epoch = {}, object()

    def refuse(self, names: Iterable[str]) -> None:
        """Remove stored kernels, or all of a family, for the rest of the process, whatever the stores hold."""
        with self._taking:
            self._refused |= set(names)
            self._take(self.contents)

    def adapt(self, conditions: str) -> None:
        """Change the conditions under which times are taken: other timings count."""
        with self._taking:
            self.conditions, self.residuals, self._near, self.epoch = conditions, {}, {}, object()

    def record(self, workload: Workload) -> Kernel | None:
        """Return the kernel tuning chose for exactly this Workload."""
        self.include(workload)
        kernel = self.contents.kernels.get(self.contents.records.get(workload.key(), ""))
        return kernel if kernel is not None and kernel.fits(workload) else None

    def is_tuned_elsewhere(self, workload: Workload) -> bool:
        """Return whether the record of a Workload is of another part of the capability."""
        return workload.key() in self.contents.elsewhere

    def divided(self, kernel: Kernel) -> list[Program]:
        """Return the Program of a stored kernel, then those that divide k in other ways and are not stored."""
        if self.arch is None:
            return [kernel.program]
        found = self._divided.get(kernel.digest)
        if found is None:
            found = divide(kernel, self.arch)
            if len(found) > 1:
                name, (own, *others) = kernel.serves.class_key(), found
                found = [own, *[each for each in others if (name, each) not in self._programs_stored]]
            self._divided[kernel.digest] = found
        return found

    def launched(self, kernel: Kernel, program: Program) -> Kernel:
        """Return a stored kernel with the launch arguments of one of its `divided` Programs."""
        if program == kernel.program:
            return kernel
        made = relaunch(kernel, program)
        return self._relaunched.setdefault(made.digest, made)

    def timings(self, workload: Workload) -> list[Timing]:
        """Return the timings of exactly this Workload on this part, of kernels that can still be used: under the
        present conditions or, without any, under all. A kernel whose times are invalid with a new driver or another
        power mode is demoted by the first race after that. Times of kernels outlast other versions of the array library
        and of its backends, and its own call's serve until that race; but with other accelerators it is another
        call."""
        self.include(workload)
        rows = self.contents.timings.get(workload.key(), ())
        usable = [row for row in rows if row.kernel_digest is None or self._fits(row, workload)]
        return counting(usable, self.conditions)

    def is_current(self, workload: Workload) -> bool:
        """Return whether its timings were taken under the conditions there are now, those of the library's call and of
        its record's kernel among them."""
        current = {row.kernel_digest for row in self.timings(workload) if is_under(row, self.conditions)}
        recorded = self.record(workload)
        return len(current) > 1 and None in current and (recorded is None or recorded.digest in current)

    def has_raced(self, kernel: Kernel, workload: Workload) -> bool:
        """Return whether a race has timed a kernel under the present conditions, and compared it if it won."""
        rows = self.contents.timings.get(workload.key(), ())
        mine = [row for row in rows if row.kernel_digest == kernel.digest and '"race":true' in row.samples]
        return any(is_under(row, self.conditions) for row in mine)

    def _fits(self, row: Timing, workload: Workload) -> bool:
        """Return whether the kernel of a timing may be launched for a Workload as it was timed."""
        base = launched(row)[0] or ""
        kernel = self.find(row.kernel_digest or "", base)
        if kernel is None or kernel.base is None:
            return kernel is not None and kernel.fits(workload)
        return self.arch is not None and is_legal(kernel, workload, self.arch)

    def find(self, name: str, base: str) -> Kernel | None:
        """Return the kernel with this digest: the stored kernel `base`, or that launched with other arguments."""
        stored = self.contents.kernels.get(base)
        if stored is None or base == name or self.arch is None:
            return stored if base == name else None
        if name not in self._relaunched:  # it was launched by another process
            made = [relaunch(stored, each) for each in divide(stored, self.arch)[1:]]
            self._relaunched.update({each.digest: each for each in made})
        kernel = self._relaunched.get(name)
        return kernel if kernel is not None and kernel.base == base else None

    def kernel(self, name: str) -> Kernel:
        """Return the kernel with this digest, which is stored or named by `timings`."""
        return self.contents.kernels.get(name) or self._relaunched[name]

    def shelves(self, workload: Workload) -> list[Shelf]:
        """Return every class whose binaries compute `workload`, whatever epilogues are compiled into them."""
        self.include(workload)
        return [shelf for shelf in self._shelves.get(types_of(workload), ()) if _reads(shelf.serves, workload)]

    def alike(self, kernel: Kernel) -> list[Kernel]:
        """Return the stored kernels of the types of a kernel."""
        shelves = self._shelves.get(types_of(kernel.serves), ())
        return [each for shelf in shelves for each in (*shelf.portfolio, *shelf.others)]

    def timed(self, kernel: Kernel) -> list[tuple[Workload, float]]:
        """Return the Workloads a kernel was measured on, with the median in microseconds."""
        return [
            (Workload.from_json(key), row.median_us)
            for key, rows in self.contents.timings.items()
            for row in rows
            if row.kernel_digest == kernel.digest
        ]
