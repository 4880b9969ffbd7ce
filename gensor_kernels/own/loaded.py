"""A tuned kernel of a user, loaded from a database: called with arrays, on a GPU or inside `emulated`."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import gensor_database as database
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.errors import ConfigError, UnsupportedError
from gensor_kernels.machine.arch import Arch

from .configuration import Configuration
from .description import NUMBER, READ, Argument, Description, Value
from .expressions import names_in
from .launch import Call, Launchable
from .stored import ABI, FAMILY, knobs_of, sizes_of, workload_text


def load(path: str | os.PathLike[str], name: str | None = None) -> Loaded:
    """Load a kernel that `Best.save` stored.

    Parameters
    ----------
    path : str or PathLike
        The database.
    name : str, optional
        The kernel, where the database has several.

    Returns
    -------
    Loaded
        Called with the kernel's arguments.

    Raises
    ------
    StoreError
        For a file that is no database.
    ConfigError
        Where it has no such kernel, or several.

    Examples
    --------
    >>> twice = load("twice.db")  # doctest: +SKIP
    >>> twice(x, n=4096)  # doctest: +SKIP
    """
    store = database.Store.open(path, readonly=True)
    classes = sorted({row.class_key for row in store.rows(database.Kernel, family=FAMILY, abi=ABI)})
    described = {text: Description.from_json(text) for text in classes}
    found = {text: each for text, each in described.items() if name in (None, each.name)}
    if len(found) != 1:
        names = ", ".join(sorted({each.name for each in described.values()})) or "none"
        wanted = "one kernel" if name is None else f"one kernel {name}"
        raise ConfigError(f"{store.path} has not {wanted}: it has {names}; give one by name=, or store each in a file")
    ((text, description),) = found.items()
    return Loaded(store, text, description)


@dataclass(frozen=True)
class Choice:
    """A stored configuration for an arch."""

    digest: str
    knobs: dict[str, Value]
    code: Launchable


class Loaded:
    """A user's kernel in a database.

    The first call at new sizes times the stored configurations on the caller's GPU, with copies of the arrays that the
    kernel writes, and the fastest serves from then on; during a capture, and inside `emulated`, that of the record
    serves.

    Attributes
    ----------
    description : Description
        The kernel.
    """

    def __init__(self, store: database.Store, class_key: str, description: Description):
        self.description = description
        self._store, self._class_key = store, class_key
        self._constants: dict[str, Any] = {}
        self._choices: dict[tuple[str, str], tuple[Choice, ...]] = {}
        self._calls: dict[object, Call] = {}
        self._fastest: dict[object, Call] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<{self.description.name} of {self._store.path}>"

    def constants(self, **arrays: Any) -> None:
        """Set ``__constant__`` variables by name, for all calls from now on; arrays of the host or the device."""
        known = {each.name for each in self.description.constants}
        for name, array in arrays.items():
            if name not in known:
                raise ConfigError(
                    f"{self.description.name} has no constant {name}: it has {', '.join(known) or 'none'}"
                )
            self._constants[name] = array
        with self._lock:
            self._calls.clear()
            self._fastest.clear()

    def __call__(self, *arguments: Any, **sizes: int) -> None:
        """Launch the kernel on the current stream.

        Parameters
        ----------
        *arguments : array or number
            In the order of the kernel's parameters.
        **sizes : int
            Sizes that no argument gives: a size is known where a number is that size alone, or an array's extent is.

        Raises
        ------
        ValueError
            For arrays or sizes that do not fit.
        UnsupportedError
            Where no configuration is stored for the GPU's architecture.
        """
        device = current_runtime().device
        named = self._sizes(arguments, sizes)
        self._check(device, arguments, named)
        key = (device, device.number, tuple(sorted(named.items())))
        call = self._fastest.get(key)
        if call is None:
            call = self._chosen(device, arguments, named, key)
        call(arguments, named)

    # ---- arguments

    def _sizes(self, arguments: Sequence[Any], given: Mapping[str, int]) -> dict[str, int]:
        described = self.description.arguments
        if len(arguments) != len(described):
            raise ValueError(f"{self.description.name} takes {len(described)} arguments, not {len(arguments)}")
        sizes = {name: int(value) for name, value in given.items()}
        wanted = set(self.description.sizes)
        pairs = sorted(zip(described, arguments, strict=True), key=lambda pair: pair[0].role != NUMBER)
        for what, value in pairs:  # numbers first: arrays are compared with them
            extents = [value] if what.role == NUMBER else getattr(value, "shape", ())
            if len(extents) != len(what.shape):
                continue
            for text, extent in zip(what.shape, extents, strict=True):
                if text in wanted and text not in sizes:
                    sizes[text] = int(extent)
        if missing := sorted(wanted - sizes.keys()):
            sizes.update(self._tuned(missing, arguments, sizes))
        return {name: sizes[name] for name in sorted(wanted)}

    def _tuned(self, missing: Sequence[str], arguments: Sequence[Any], known: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of a record that the arrays have; ValueError without one."""
        for row in self._store.rows(database.Record):
            with suppress(ConfigError):
                sizes = sizes_of(row.key)
                if known.items() <= sizes.items() and self._fits(arguments, sizes):
                    return {name: sizes[name] for name in missing}
        raise ValueError(f"{self.description.name}: no argument gives the size {missing[0]}: pass {missing[0]}=")

    def _fits(self, arguments: Sequence[Any], sizes: Mapping[str, int]) -> bool:
        pairs = zip(self.description.arguments, arguments, strict=True)
        try:
            return all(what.role == NUMBER or _elements(what, sizes) == value.size for what, value in pairs)
        except (ConfigError, AttributeError):
            return False

    def _check(self, device: Device, arguments: Sequence[Any], sizes: Mapping[str, int]) -> None:
        for number, (what, value) in enumerate(zip(self.description.arguments, arguments, strict=True)):
            if what.role == NUMBER:
                if (size := sizes.get(what.shape[0], value)) != value:
                    raise ValueError(f"argument {number} of {self.description.name} is {size}, not {value}")
                continue
            if not device.is_array(value):
                raise TypeError(f"argument {number} of {self.description.name} is an array, not {type(value).__name__}")
            if value.dtype != np.dtype(what.dtype):
                raise TypeError(f"argument {number} of {self.description.name} is {what.dtype}, not {value.dtype}")
            if not value.flags.c_contiguous:
                raise ValueError(f"argument {number} of {self.description.name} is not C-contiguous")
            depends_on_knobs = any(names_in(text) - sizes.keys() for text in what.shape)
            if not depends_on_knobs and value.size != (wanted := _elements(what, sizes)):
                raise ValueError(
                    f"argument {number} of {self.description.name} has {wanted} elements, not {value.size}"
                )

    # ---- choosing

    def choices(self, arch: Arch) -> tuple[Choice, ...]:
        """Return the verified configurations for an arch, those of its part first, the best first."""
        key = (arch.name, arch.part)
        if key not in self._choices:
            catalog = database.Catalog([self._store], arch.name, {FAMILY: ABI})
            stored = catalog.portfolio(self._class_key, arch.part) or catalog.portfolio(self._class_key)
            self._choices[key] = tuple(choice for each in stored if (choice := self._choice(each)) is not None)
        return self._choices[key]

    def _choice(self, stored: database.StoredKernel) -> Choice | None:
        binary, source = stored.binary(), stored.source()
        if binary is None or source is None:
            return None
        facts = json.loads(binary.facts)
        knobs = knobs_of(stored.kernel.program)
        configuration = Configuration(self.description, source.text.decode(), tuple(knobs.items()), binary.target)
        return Choice(stored.kernel.digest, knobs, Launchable(configuration, binary.cubin, str(facts["entry"])))

    def _chosen(self, device: Device, arguments: Sequence[Any], sizes: dict[str, int], key: object) -> Call:
        if device.arch is None:
            raise UnsupportedError(device.unsupported)
        choices = self.choices(device.arch)
        if not choices:
            raise UnsupportedError(
                f"{self._store.path} has no configuration of {self.description.name} for {device.arch.name} that may "
                "be loaded: tune it for this architecture, in a file that no other user can write to"
            )
        with self._lock:
            fitting = [each for each in choices if self.description.fits({**each.knobs, **sizes})]
            calls = [self._bound(device, each) for each in fitting]
            if not calls:
                raise UnsupportedError(f"no stored configuration of {self.description.name} can be launched at {sizes}")
            if device.emulated or device.capturing():
                return calls[0]
            call = calls[self._race(device, fitting, calls, arguments, sizes)] if len(calls) > 1 else calls[0]
            self._fastest[key] = call
            return call

    def _race(
        self, device: Device, choices: Sequence[Choice], calls: Sequence[Call], arguments: Sequence[Any], sizes: dict
    ) -> int:
        """Return the number of the fastest call; times that the database has are not taken again."""
        assert device.arch is not None
        key = workload_text(self.description, sizes)
        known: dict[str, list[float]] = {}
        for row in self._store.timings(key, device.arch.part):
            known.setdefault(row.kernel_digest or "", []).append(row.median_us)
        if all(each.digest in known for each in choices):
            times = [median(known[each.digest]) for each in choices]
            return int(np.argmin(times))
        # What the kernel writes is a copy: many launches must not change the caller's arrays.
        pairs = zip(self.description.arguments, arguments, strict=True)
        held = [value if what.role in (READ, NUMBER) else value.copy() for what, value in pairs]
        samples = device.sampler([partial(call, held, sizes) for call in calls]).first()
        times = [each.device_us for each in samples]
        self._remember(device.arch, key, choices, times)
        return int(np.argmin(times))

    def _remember(self, arch: Arch, key: str, choices: Sequence[Choice], times: Sequence[float]) -> None:
        rows = [
            database.Timing(key, arch.name, arch.part, choice.digest, None, us)
            for choice, us in zip(choices, times, strict=True)
        ]
        with suppress(database.StoreError), database.Store.open(self._store.path) as store:
            store.add(*rows)

    # ---- launching

    def _bound(self, device: Device, choice: Choice) -> Call:
        key = (device, device.number, choice.digest)
        if key not in self._calls:
            self._calls[key] = choice.code.on(device, dict(self._given_constants()))
        return self._calls[key]

    def _given_constants(self) -> list[tuple[str, Any]]:
        if missing := [each.name for each in self.description.constants if each.name not in self._constants]:
            raise ConfigError(
                f"{self.description.name} reads the constant {missing[0]}: set it by constants({missing[0]}=...)"
            )
        kinds = {each.name: np.dtype(each.dtype) for each in self.description.constants}
        return [(name, array.astype(kinds[name], copy=False)) for name, array in self._constants.items()]


def _elements(what: Argument, sizes: Mapping[str, int]) -> int:
    return int(np.prod(what.extents(sizes), dtype=np.int64))
