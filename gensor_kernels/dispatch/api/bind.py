"""bind: calls that are made again on the same arrays, without dispatch. Imports little: a first call loads the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.shown import shown

from .current import current_runtime
from .explain import computes
from .interop import arrays_in

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.plans.runtime import Runtime


def bind(function: Callable[..., Any], *args: Any, **keywords: Any) -> BoundCall:
    """Make a call on fixed arrays, and return a function that makes it again.

    The call runs once. What it chose is kept: `plan()` launches the same kernels on
    the memory of the same arrays, which takes a third of the time of a warm `matmul`.

    Parameters
    ----------
    function : callable
        A function of `gensor_kernels` with an argument `out`: not `tensordot`, `vdot`,
        `inner`, or what `define` returned.
    *args, **keywords
        Arguments of the call, with `out`.

    Returns
    -------
    callable
        `plan()` computes the call from what the arrays hold then, on the current stream,
        and returns `out`, as it was given. It keeps the arrays, and memory for
        workspaces. It may be captured into a CUDA graph, which must not outlive it.

    Raises
    ------
    TypeError
        If `function` is another function or has no `out`, or if `out` is not given. For
        arguments that do not fit, `bind` raises what the call raises.

    Notes
    -----
    Calls that CuPy serves, or that copy arrays first, are dispatched by `plan()` as by
    the function. So are calls with arrays of other libraries, calls while they are
    recorded, and the first ones of a kind, which may race. A number among the arguments
    has the value that it had in `bind`. After `refresh`, and when background tuning has
    found another kernel, `plan()` chooses again, within the blocks (`emulated`,
    `deterministic`) that were open in `bind`. Two threads must not run one plan at the
    same time: both write `out`.

    Examples
    --------
    >>> a, b = np.ones((2, 3), "float32"), np.ones((3, 2), "float32")
    >>> c = np.empty((2, 2), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     plan = gensor_kernels.bind(gensor_kernels.matmul, a, b, out=c)
    >>> a[...] = 2
    >>> plan() is c
    True
    >>> c
    array([[6., 6.],
           [6., 6.]], dtype=float32)
    """
    name = getattr(function, "__name__", shown(function))
    if not computes(function):
        raise TypeError(f"bind knows gensor_kernels.matmul and its like, not {shown(function)}")
    expected = signature(function)
    if "out" not in expected.parameters:
        raise TypeError(f"{name} has no argument out, the array that every call of a plan writes")
    try:
        call = expected.bind(*args, **keywords)
    except TypeError as error:  # in the words of a call that does not fit
        raise TypeError(f"{name}() {error}") from None
    out = call.arguments.pop("out", None)
    if out is None:
        raise TypeError(f"bind({name}, ...) needs out, the array that every call of the plan writes")
    inputs = list(arrays_in((*call.args, *call.kwargs.values())))
    return BoundCall(name, partial(function, *args, **keywords), inputs, out)


class _Bound(NamedTuple):
    """How a call is made again.

    `launch` makes it, for as long as `epoch` is the Runtime's, its look-up is not `bypassed` (every call is dispatched
    while calls are counted, say) and `tf32`, the library's switch where it counts, is on. After one of `troubles` the
    call is dispatched. `kept` is memory that launches use.
    """

    runtime: Runtime
    epoch: int
    bypassed: object
    tf32: Callable[[], bool] | None
    launch: Callable[[], object]
    troubles: tuple[type[Exception], ...]
    kept: Sequence[object]


class BoundCall:
    """A call of a public function on the same arrays: see `bind`."""

    def __init__(self, name: str, call: Callable[[], DeviceArray], inputs: Sequence[DeviceArray], out: DeviceArray):
        self.out = out
        first, *others = list(arrays_in(out)) or [out]
        # Further outputs are inputs of a launch, which it writes.
        self._result, inputs = first, (*inputs, *others)
        self._name, self._call, self._inputs, self._context = name, call, inputs, copy_context()
        self._bound: _Bound | None = None
        self._make()

    def __repr__(self) -> str:
        return f"<bound call of {self._name}>"

    def __call__(self) -> DeviceArray:
        """Make the call, and return `out`."""
        if self._bound is not None:
            runtime, epoch, bypassed, tf32, launch, troubles, _ = self._bound
            if runtime.epoch == epoch and runtime.find is not bypassed and (tf32 is None or tf32()):
                try:
                    launch()
                    return self.out
                except troubles:
                    pass  # whose remedy is in dispatch
        self._make()
        return self.out

    def _make(self) -> None:
        """Dispatch the call within the blocks that it was bound in, and keep how it is made again."""
        self._context.copy().run(self._make_here)  # a copy: two threads cannot enter one context

    def _make_here(self) -> None:
        from gensor_kernels.dispatch.tuning.tuned_calls import unseen

        runtime = current_runtime()
        known = all(runtime.device.is_array(each) for each in (*self._inputs, self._result))
        if known and runtime.find is not unseen and not runtime.device.capturing():
            self._bound = self._bind(runtime)
        else:
            self._call()

    def _bind(self, runtime: Runtime) -> _Bound | None:
        """Make the call, and return how it is made again; None while its kind may still race."""
        from gensor_kernels.devices.lending import Lease
        from gensor_kernels.dispatch.plans.bound import Binder, repeat
        from gensor_kernels.dispatch.tuning.tuned_calls import unseen

        device, epoch, binder = runtime.device, runtime.epoch, Binder(runtime.device)
        kept: list[Lease] = []

        def lease(nbytes: int) -> Lease:
            kept.append(Lease(0, 0, None))
            return kept[-1]

        binder.begin(self._inputs, self._result)
        with device.lending(lease), runtime.bound_by(binder):
            self._call()
        if not binder.settled:
            return None
        if not binder.is_launches(()) or not binder.writes(self._result):
            return _Bound(runtime, epoch, unseen, None, self._again, (), ())
        steps = [step for launched in binder.launches for step in repeat(device, launched, lambda array: array)]
        for trial in dict.fromkeys(binder.trials):  # who binds a call makes it often
            trial.ripen()
        launch = steps[0] if len(steps) == 1 else partial(_each, steps)
        if kept:
            launch = partial(_lasting, device, kept, launch)
        if runtime.where is not None:
            launch = partial(_on, device, launch)
        tf32 = device.tf32 if binder.switched else None
        return _Bound(runtime, epoch, unseen, tf32, launch, runtime.troubles, kept)

    def _again(self) -> None:
        """Dispatch the call, which the array library computes, or several launches and copies."""
        self._context.copy().run(self._call)


def _each(steps: Sequence[Callable[[], object]]) -> None:
    """Make several launches."""
    for step in steps:
        step()


def _lasting(device: Device, kept: Sequence[object], launch: Callable[[], object]) -> None:
    """Make a launch that uses a plan's own memory; a graph that captures it keeps that."""
    if device.capturing():
        with device.lasting(*kept):
            launch()
    else:
        launch()


def _on(device: Device, launch: Callable[[], object]) -> None:
    """Make a launch on one of several devices, whichever is the current one."""
    with device.current():
        launch()
