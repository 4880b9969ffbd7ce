"""A user's CUDA kernel with knobs: what it is, and where it is tuned."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from gensor_kernels.errors import ConfigError, ToolMissingError
from gensor_kernels.install import command

from .description import NUMBER, Argument, Description, Value
from .expressions import Expressions, extents, names_in

#: The module that tunes: found by its name, because the runtime imports nothing of the tuner.
TUNER = "gensor_tuner.own.tune"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


def read_source(given: str | Path) -> str:
    """Return a source text with its quoted includes in place; `given` is a path, or the text itself.

    Compilers name the files, and their lines. ConfigError where a file cannot be read.
    """
    if isinstance(given, str) and ("__global__" in given or "\n" in given):
        return given
    path = Path(given)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the source {path} cannot be read: {getattr(error, 'strerror', error)}") from None

    def included(found: re.Match[str]) -> str:
        header, line = path.parent / found[1], text.count("\n", 0, found.end()) + 2
        return f'{read_source(header)}\n#line {line} "{path.name}"' if header.is_file() else found[0]

    return f'#line 1 "{path.name}"\n{_INCLUDE.sub(included, text)}'


class Best(Protocol):
    """The result of `Kernel.tune`: verified configurations by predicted time; printed, a table of them."""

    @property
    def knobs(self) -> dict[str, Value]:
        """The knobs of the best configuration."""

    def explain(self, number: int = 0) -> dict[str, float | str]:
        """Return the terms of a configuration's predicted time: clocks of each resource, and the one that limits."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add the configurations to a database; StoreError where it cannot be written."""

    def to_t4(self, path: str | os.PathLike[str]) -> None:
        """Write the configurations as a T4 file, which Kernel Tuner's tools read."""


class Kernel:
    """A CUDA kernel with knobs.

    Parameters
    ----------
    source : str or Path
        A file, or the text itself. Knobs are macros in it.
    name : str
        The __global__ function, or a name expression such as ``"transpose<float>"``, in which knobs may stand.
    knobs : mapping
        Values of each knob by its name: whole numbers, or texts.
    restrictions : sequence of str
        Python expressions of knobs and sizes that hold for every configuration.
    block, grid : int, str, tuple or callable
        Extents along x, y and z: expressions, or a function of the knobs ``p``, for the grid also of the sizes ``n``.
    args : sequence
        `In`, `Out`, `InOut` and `Scalar`, in the order of the parameters.
    constants : mapping
        Arrays of ``__constant__`` variables by their names, each an `In`.
    shared : int, str or callable
        Bytes of dynamic shared memory.
    terms : int or str
        How many rounded products or sums one result is made of: error bounds of the comparison with the reference
        follow from it.
    options : sequence of str
        For NVRTC, such as ``"--use_fast_math"``.

    Raises
    ------
    ConfigError
        For a description that makes no sense, or a file that cannot be read.

    Examples
    --------
    >>> text = 'extern "C" __global__ void twice(float *x) { x[blockIdx.x * threads + threadIdx.x] *= 2; }'
    >>> kernel = Kernel(text, "twice", knobs={"threads": [64, 128]}, block=lambda p: p.threads,
    ...                 grid=lambda p, n: n.w // p.threads, args=[InOut("f4", "w")])
    >>> kernel.description.grid[0], kernel.description.sizes
    ('(w // threads)', ('w',))
    """

    def __init__(
        self,
        source: str | Path,
        name: str,
        *,
        knobs: Mapping[str, Sequence[Value]],
        block: Expressions,
        grid: Expressions,
        args: Sequence[Argument],
        restrictions: Sequence[str] = (),
        constants: Mapping[str, Argument] | None = None,
        shared: Expressions = 0,
        terms: Expressions = 1,
        options: Sequence[str] = (),
    ):
        self.source = read_source(source)
        #: sizes that a file gives (see `from_t1`); `tune` has its own
        self.sizes: Mapping[str, int] = {}
        values = {knob: _values(knob, given) for knob, given in knobs.items()}
        self.description = Description(
            name=name.strip(),
            source=hashlib.sha256(self.source.encode()).hexdigest(),
            knobs=tuple(values.items()),
            restrictions=tuple(str(each) for each in restrictions),
            block=extents(block, values),
            grid=extents(grid, values),
            shared=extents(shared, values, 1)[0],
            arguments=tuple(args),
            constants=tuple(
                Argument(each.role, each.dtype, each.shape, each.low, each.high, variable)
                for variable, each in (constants or {}).items()
            ),
            options=tuple(options),
            terms=extents(terms, values, 1)[0],
        )
        self._check()

    def _check(self) -> None:
        described = self.description
        if not any(each.role in ("out", "inout") for each in described.arguments):
            raise ConfigError(f"{described.name} writes nothing: one of args is an Out or InOut")
        for restriction in described.restrictions:
            names_in(restriction)
        if unknown := [text for each in described.constants for text in [each.name] if each.role == NUMBER]:
            raise ConfigError(f"the constant {unknown[0]} is a Scalar: describe it by In, of one element")
        identifier = described.name.partition("<")[0].rpartition("::")[2].strip()
        if not re.search(rf"\b{re.escape(identifier)}\b", self.source):
            raise ConfigError(f"the source has no {identifier}")
        words = set(re.findall(r"\w+", f"{described.name} {self.source}")) | described.names
        if unread := [knob for knob, values in described.knobs if len(values) > 1 and knob not in words]:
            raise ConfigError(f"the knob {unread[0]} is read neither by the source nor by the launch and its arguments")

    def tune(
        self,
        arch: str,
        sizes: Mapping[str, int],
        reference: Callable[..., Any],
        *,
        check_at: Mapping[str, int] | None = None,
        count_at: Mapping[str, int] | None = None,
        keep: int = 16,
        budget: int = 600,
        seed: int = 0,
        jobs: int | None = None,
        measure: Literal["auto", "never", "require"] = "auto",
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Best:
        """Find the fastest configurations for a GPU, which need not be present.

        Parameters
        ----------
        arch : str
            A capability or a part, as for `gensor-tune`.
        sizes : mapping
            Sizes that are tuned for.
        reference : callable
            The right result: called with every array that is read, in the order of the arguments, then with constants,
            all floats as float64, and with those sizes as keywords that it has parameters for. Returns the arrays
            that are written, as a tuple where there are several.
        check_at : mapping, optional
            Sizes at which finalists are executed and compared, by default `sizes`, halved to at most 128 where even.
        count_at : mapping, optional
            Sizes at which blocks are executed to be counted, by default `sizes`; counts of a block are linear in each
            size.
        keep : int
            Finalists that are executed and stored.
        budget : int
            Configurations that are compiled at most, but for neighbours of the fastest once they are measured.
        seed : int
            Of the walk.
        jobs : int, optional
            Compilers at a time, by default one per core.
        measure : {"auto", "never", "require"}
            Whether configurations are timed: where this machine's GPU is `arch`'s part, never, or else an error.
        progress : callable, optional
            Called with a stage's name, what is done of it, and its extent.

        Returns
        -------
        Best
            Verified configurations, by measured or else predicted time.

        Raises
        ------
        ConfigError
            For sizes or a reference that do not fit.
        BuildError
            Where no configuration compiles.
        UnsupportedError
            For a kernel that uses what cannot be counted or executed here.
        ToolMissingError
            Where the tuner is not installed.
        GpuError
            Where measuring is required and this machine has no GPU of that part.
        """
        try:
            tuner = import_module(TUNER)
        except ModuleNotFoundError as error:
            raise ToolMissingError(f"the tuner needs {error.name}: {command('tune')}") from error
        made: Best = tuner.tune(
            self,
            arch,
            sizes,
            reference,
            check_at=check_at,
            count_at=count_at,
            keep=keep,
            budget=budget,
            seed=seed,
            jobs=jobs,
            measure=measure,
            progress=progress,
        )
        return made


def _values(knob: str, given: Sequence[Value]) -> tuple[Value, ...]:
    if not _NAME.match(knob):
        raise ConfigError(f"the knob {knob!r} is no name of a macro")
    values = tuple(int(value) if isinstance(value, bool) else value for value in given)
    if not values:
        raise ConfigError(f"the knob {knob} has no values")
    if len(set(values)) < len(values):
        raise ConfigError(f"the knob {knob} has a value twice: {', '.join(map(str, values))}")
    numbers = [isinstance(value, int) for value in values]
    if not all(numbers) and not all(isinstance(value, (str, float)) for value in values):
        raise ConfigError(f"the knob {knob} has values of several kinds: {', '.join(map(repr, values))}")
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value))) if all(numbers) else values
