"""The two halves of parallel tuning: tasks, which know what to do, and executors, which know where.

An executor is shaped as `concurrent.futures.Executor`, for tasks in place of functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

Result = TypeVar("Result")
Made = TypeVar("Made")


def to_plain(value: object) -> Any:
    """Return a value made of dataclasses and bytes as JSON has it, for `from_plain`."""
    return msgspec.to_builtins(value, str_keys=True)


def from_plain(kind: type[Made], plain: object) -> Made:
    """Return the value of a type that `to_plain` has turned into JSON; ValueError, with the place, for another."""
    try:
        return msgspec.convert(plain, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


class Task(ABC, Generic[Result]):
    """A function with its arguments, which travels as JSON, as its result does.

    `kind` is the ability that it needs: walk, compile, verify, time or execute. `answer` is the type of what `pack`
    returns. Tasks that are `in_python` hold Python's lock, so that processes run them in parallel and threads do not. A
    task that takes longer than `seconds` hangs.
    """

    kind: ClassVar[str]
    answer: ClassVar[Any]
    in_python: ClassVar[bool] = False
    seconds: ClassVar[float] = 600.0

    @property
    def key(self) -> Hashable | None:
        """A key that equal tasks share, whose results are equal, or None if no two tasks are equal."""
        return None

    @property
    def part(self) -> str | None:
        """The part that the task needs, such as "orin-nano-8gb", or None if any machine can run it."""
        return None

    @abstractmethod
    def run(self) -> Result:
        """Do the work in this process."""

    @abstractmethod
    def lost(self, reason: str) -> Result:
        """Return the result that stands for a task that no machine could finish."""

    def arguments(self) -> object:
        """Return what `from_arguments` needs, made of dataclasses and bytes."""
        return self

    @classmethod
    def from_arguments(cls, plain: dict[str, Any]) -> Task[Result]:
        """Return the task whose arguments, as JSON has them, are `plain`."""
        return from_plain(cls, plain)

    def pack(self, result: Result) -> object:
        """Return what travels of a result, an `answer`."""
        return result

    def unpack(self, answer: Any) -> Result:
        """Return the result in the answer of another machine; one of `MALFORMED` where it cannot be one."""
        self.check(answer)
        found: Result = answer
        return found

    def check(self, result: Result) -> None:
        """Raise one of `MALFORMED` where a result cannot be one of this task."""


def ignore(index: int, result: object) -> None:
    """Do nothing with a result that has come."""


class Executor(ABC):
    """Runs tasks; a context manager that owns processes or connections.

    `jobs` tasks run at once. `lost` has the reasons why tasks could not be finished. `again` repeats tasks before their
    results are stored, where this executor's machines are not trusted.
    """

    def __init__(self, jobs: int, again: Executor | None = None):
        self.jobs, self.again = jobs, again
        self.lost: list[str] = []

    @abstractmethod
    def map(self, tasks: Sequence[Task[Result]], done: Callable[[int, Result], None] = ignore) -> list[Result]:
        """Return the results of tasks of one kind, in their order; `done(index, result)` is called here for each."""

    def expect(self, tasks: Sequence[Task[Any]]) -> None:  # noqa: B027 - a hint, which an executor may ignore
        """Take a hint: these tasks come next, and may begin where nothing else runs."""

    def prepare(self) -> None:  # noqa: B027 - nothing needs preparation everywhere
        """Prepare for executions of kernels, which come later."""

    def own(self) -> Executor:
        """Return a view of this executor with its own list `lost`."""
        return self

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *reason: object) -> None:  # noqa: B027 - not every executor owns any
        """End processes and connections."""
