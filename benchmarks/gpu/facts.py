"""The machine, and the ceilings with which all other figures are compared."""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from gensor_kernels.build import nvrtc
from gensor_kernels.devices import cupy_internals
from gensor_kernels.errors import ToolMissingError

from . import probes
from .harness.session import Item, Session

STEP = "facts"
QUERY = (
    "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks_throttle_reasons.active,"
    "power.draw,power.limit,temperature.gpu"
)
COPY_BYTES = 1 << 30
SIDE = 8192


def items(session: Session) -> Iterator[Item]:
    """Yield the environment, copy bandwidth, matrix products, and probes of the facts in archs.toml."""
    yield Item("environment", lambda: environment(session), always=True)
    yield Item("copy", lambda: copy(session))
    for dtype in ("float16", "float32"):
        yield Item(f"matmul {dtype}", lambda dtype=dtype: product(session, dtype))  # type: ignore[misc]
    for name, probe in probes.probes(session, _median_seconds):
        yield Item(name, partial(with_clock, session, probe))


def with_clock(session: Session, probe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a probe's figures and the clock at which they were taken."""
    return {**probe(), "clocks": {} if session.emulate else smi()}


def environment(session: Session) -> dict[str, Any]:
    """Return all facts about the machine that explain a number."""
    arch = session.arch
    found: dict[str, Any] = {
        "arch": arch.name,
        "part": session.part,
        "host": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        "model": {"sms": arch.sms, "clock_ghz": arch.clock_ghz, "dram_gb_s": arch.dram_gb_s, "l2_mb": arch.l2_mb},
    }
    try:
        found["nvrtc"] = nvrtc.toolchain()
    except ToolMissingError as error:
        found["nvrtc"] = str(error)
    if session.emulate:
        return found
    cupy: Any = session.device.xp
    number = cupy.cuda.runtime.getDevice()
    name = cupy.cuda.runtime.getDeviceProperties(number)["name"]
    free, total = cupy.cuda.runtime.memGetInfo()
    return found | {
        "gpu": name.decode() if isinstance(name, bytes) else str(name),
        "capability": cupy.cuda.Device(number).compute_capability,
        "attributes": {key: value for key, value in cupy.cuda.Device(number).attributes.items() if value},
        "cupy": cupy.__version__,
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "cuda_driver": cupy.cuda.runtime.driverGetVersion(),
        "cublas": _cublas(cupy),
        "memory_free": free,
        "memory_total": total,
        "smi": smi(),
        "power_mode": power_mode(),
    }


def _cublas(cupy: ModuleType) -> int | None:
    try:
        return cupy_internals.cublas_version(cupy)
    except Exception:  # a detail, which CuPy has moved before
        return None


def smi() -> dict[str, str]:
    """Return clocks, power and throttle reasons now; empty where nvidia-smi is absent (as on a Jetson)."""
    lines = _output("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-i", "0").splitlines()
    values = lines[0].split(",") if lines else []
    return dict(zip(QUERY.split(","), (value.strip() for value in values), strict=False))


def power_mode() -> str:
    """Return a Jetson's power mode as nvpmodel prints it; empty elsewhere."""
    return " ".join(_output("nvpmodel", "-q").split())


def _output(tool: str, *options: str) -> str:
    """Return what a tool prints; empty where it is absent or fails."""
    path = shutil.which(tool)
    if path is None:
        return ""
    try:
        return subprocess.run([path, *options], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


class Clocks:
    """A cache of `smi`: conditions of a timing without the cost of a query."""

    def __init__(self, seconds: float = 5.0):
        self.seconds, self.at = seconds, -1e9
        self.last: dict[str, str] = {}

    def now(self) -> dict[str, str]:
        """Return the facts, at most `seconds` old."""
        if time.monotonic() - self.at > self.seconds:
            self.at, self.last = time.monotonic(), smi()
        return self.last


def copy(session: Session) -> dict[str, Any]:
    """Return bytes per second of a copy from device memory to device memory, counting both directions."""
    xp, size = session.device.xp, 1 << 20 if session.emulate else COPY_BYTES
    source, target = xp.ones(size, np.uint8), xp.empty(size, np.uint8)

    def work() -> None:
        target[...] = source

    seconds = _median_seconds(session, work)
    return {"bytes": 2 * size, "seconds_median": seconds, "gb_s": 2 * size / seconds / 1e9}


def product(session: Session, dtype: str) -> dict[str, Any]:
    """Return the FLOP/s of the library's large square product of normal numbers."""
    xp, side = session.device.xp, 64 if session.emulate else SIDE
    rng = xp.random.RandomState(0)
    a, b = (rng.standard_normal((side, side)).astype(dtype) for _ in range(2))
    c = xp.empty((side, side), dtype)

    def work() -> None:
        if session.emulate:  # the emulator has no product; NumPy's stands in
            xp.matmul(a, b, out=c)
        else:
            session.device.product(a, b, "ieee", out=c)

    seconds = _median_seconds(session, work)
    return {"side": side, "seconds_median": seconds, "tflops": 2 * side**3 / seconds / 1e12}


def _median_seconds(session: Session, work: Callable[[], None]) -> float:
    """Return the median of ten samples after a warm-up, by events on a GPU."""
    work()
    session.synchronize()
    samples = []
    for _ in range(2 if session.emulate else 10):
        if session.emulate:
            began = time.perf_counter()
            work()
            samples.append(time.perf_counter() - began)
            continue
        cuda: Any = session.device.xp.cuda
        start, end = cuda.Event(), cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        samples.append(cuda.get_elapsed_time(start, end) * 1e-3)
    return float(np.median(samples))
