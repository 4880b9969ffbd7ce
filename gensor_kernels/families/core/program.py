"""Program: one point of the construction space, every scheduling choice as an integer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from gensor_database.lazy import cached_property

#: Coordinates that only some workloads of a family have (with a prologue, with a window, plain products, complex
#: ones), or that Programs made before them lack.
OPTIONAL = (
    *("materialised", "masked", "stream", "form", "run", "merged", "staged", "early"),
    *("overlapped", "mask_stages", "longest_first", "polynomials"),
)


@dataclass(frozen=True)
class Program:
    """A family's name and its coordinates as (name, value) pairs, in the family's order.

    Values are the coordinate's own (``p["block_m"]`` is 128), not indices into its lattice.
    """

    family: str
    values: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        pairs = self.values.items() if isinstance(self.values, Mapping) else self.values
        object.__setattr__(self, "values", tuple([(str(name), int(value)) for name, value in pairs]))

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """The values by the names of their coordinates."""
        return dict(self.values)

    def along(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the values of a lattice's coordinates, in its order. A Program that was made before its class had one
        of the OPTIONAL is one with 0 there; ValueError where it lacks another, or has one that the lattice has not."""
        own = self.by_name
        lacking = set(names) - own.keys()
        if not lacking.issubset(OPTIONAL) or not own.keys() <= set(names):
            raise ValueError(f"not a {self.family} program of the coordinates {', '.join(names)}: {self}")
        return tuple(map(own.get, names, repeat(0)))

    def __getitem__(self, name: str) -> int:
        return self.by_name[name]

    def get(self, name: str, default: int = 0) -> int:
        """Return a value, or the default where the Program does not have the coordinate."""
        return self.by_name.get(name, default)

    def replace(self, **values: int) -> Program:
        """Return the Program with other values of some coordinates; KeyError for a coordinate that it does not have."""
        unknown = values.keys() - self.by_name.keys()
        if unknown:
            raise KeyError(", ".join(sorted(unknown)))
        made = object.__new__(Program)  # its other values were checked
        by_name = {**self.by_name, **dict(zip(values, map(int, values.values()), strict=True))}
        made.__dict__.update(family=self.family, values=tuple(by_name.items()), by_name=by_name)
        return made

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces; equal text means equal Programs."""
        body = {"family": self.family, **self.by_name}
        return json.dumps(body, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(
        cls, text: str | Mapping[str, object], order: Iterable[str] | None, always: Iterable[str] = ()
    ) -> Program:
        """Return the Program of :meth:`to_json`'s text or of an already parsed mapping.

        Coordinates come back in ``order``, or sorted.  All of them have to be there, but for OPTIONAL coordinates that
        are not among ``always``.  ValueError for text that is no Program.  See registry.program_from_json.
        """
        body = json.loads(text) if isinstance(text, str) else dict(text)
        if not isinstance(body, dict) or not isinstance(body.get("family"), str):
            raise ValueError(f"not a program: {str(text)[:200]}")
        family = body.pop("family")
        order = sorted(body) if order is None else order
        optional = set(OPTIONAL) - set(always)
        by_name = {name: body.get(name) for name in order if name in body or name not in optional}
        if by_name != body or set(map(type, body.values())) - {int}:
            raise ValueError(f"a {family} program has the integers {', '.join(by_name)}: {str(text)[:300]}")
        made = object.__new__(cls)
        made.__dict__.update(family=family, values=tuple(by_name.items()), by_name=by_name)
        return made
