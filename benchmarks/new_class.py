"""Seconds until a shape that no database has is served: `python -m benchmarks.new_class`.

Each of the 40 shapes is asked of the tuning process that calls under GENSOR_TUNE=now wait for, without the packaged
databases:

- cold: a new process, empty caches (even the emulator is compiled) and an empty database, up to the first kernel;
- warm: a running process and caches of other classes, an empty database, up to the first kernel;
- known: then the same class with another size;
- whole: a run of `gensor-tune` of its own, from the start of Python to the last row, with empty caches and database.

Beside the seconds of wall time are those of all processors together, which tell more on a machine that does other work.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.shapes.reader import read_shapes

HEADER = "op,dtype,m,n,k,batch,trans_a,trans_b,epilogue"
PRODUCTS = (
    "matmul,fp16,1024,1024,1024,1,0,1,none",
    "matmul,fp16,4096,4096,4096,1,0,0,bias_gelu",
    "matmul,fp16,16,4096,4096,1,0,1,none",
    "matmul,fp16,511,513,515,1,0,0,none",
    "matmul,fp16,128,64,128,96,0,1,scale",
    "matmul,bf16,2048,768,3072,1,0,1,bias",
    "matmul,bf16,1,4096,11008,1,0,1,none",
    "matmul,bf16,333,777,1111,1,1,0,relu",
    "matmul,fp32,512,512,512,1,0,0,none",
    "matmul,fp32,4096,4096,64,1,1,0,none",
    "matmul,fp32,100,300,1000,8,0,1,none",
    "matmul,fp32,33,65,129,1,0,0,bias_relu",
    "matmul,tf32,1024,1024,1024,1,0,1,none",
    "matmul,tf32,2048,4096,512,1,1,0,none",
    "matmul,int8,256,1024,1024,1,0,1,none",
    "matmul,int8,1024,1024,1024,1,0,0,none",
    "matmul,int8,31,77,129,1,0,1,none",
    "matmul,fp64,512,512,512,1,0,0,none",
    "matmul,fp64,1,1024,1024,1,0,1,none",
    "matmul,fp64,64,64,16384,1,1,0,none",
)
#: rows of examples/every_operator.csv
OPERATORS = (
    *("product_complex64", "product_complex128", "scores_fp16", "weights_int8", "weights_int4", "swiglu_fp16"),
    *("product_layernorm_fp16", "product_normed_bf16", "ragged_fp16", "skinny_fp16", "conv_fp16_nhwc"),
    *(
        "conv_fp32_nchw",
        "conv_fp16_stem",
        "depthwise_fp16_nhwc",
        "max_pool_fp16_nhwc",
        "softmax_fp16",
    ),
    *("layernorm_fp16", "attention_fp16_causal", "reduce_sum_fp32"),
)
ROOT = Path(__file__).resolve().parent
RESULT = ROOT / "results" / "new_class.json"
EVERY = ROOT.parent / "examples" / "every_operator.csv"
WAYS = ("cold", "warm", "known", "whole")
#: The tuning process without the packaged databases.
WORKER = """
from pathlib import Path
from gensor_database import layers
layers.PRETUNED = Path("/nonexistent")
from gensor_tuner.run.worker import main
main()
"""

Row = Mapping[str, str]


def shapes() -> list[Row]:
    """Return the 40 shapes as rows of a shapes file."""
    with EVERY.open(encoding="utf-8") as file:
        named = {row["name"]: {name: value for name, value in row.items() if value} for row in csv.DictReader(file)}
    products = [dict(zip(HEADER.split(","), text.split(","), strict=True)) for text in PRODUCTS]
    return [*products, *(named[name] for name in OPERATORS)]


def other_size(row: Row) -> Row | None:
    """Return the same row with three times the rows or images, None where the operator has neither."""
    axis = "m" if row.get("m") else "n"
    return {**row, axis: str(3 * int(row[axis]))} if row.get(axis) else None


def read(row: Row, folder: Path) -> Workload | None:
    """Return the Workload of a row, None where the reader refuses it."""
    path = folder / "shape.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    return read_shapes(path)[0].workload


class Process:
    """A tuning process and its processor time."""

    def __init__(self, cache: Path):
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}  # as dispatch/tuning/worker.py starts it
        environment |= {"GENSOR_CACHE_DIR": str(cache), "GENSOR_TUNE": "off"}
        self._child = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,  # its number is that of the group of all its processes
        )

    def ask(self, workload: Workload, arch: str, database: Path) -> tuple[float, float]:
        """Return the wall and processor seconds until the first kernel."""
        assert self._child.stdin is not None and self._child.stdout is not None
        request = {"workload": json.loads(workload.key()), "arch": arch, "db": str(database), "first": True}
        began, before = time.perf_counter(), self.processor()
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        answer: dict[str, Any] = {}
        while "status" not in answer:
            answer = json.loads(self._child.stdout.readline())
        if answer["status"] != "ok":
            raise RuntimeError(f"{workload.key()}: {answer['error']}")
        return time.perf_counter() - began, self.processor() - before

    def processor(self) -> float:
        """Return the processor seconds of all processes of the group, those that have ended included."""
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # ended meanwhile
                continue
            if int(fields[2]) == self._child.pid:
                total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.communicate()


def whole(row: Row, arch: str, folder: Path) -> dict[str, Any]:
    """Tune one shape by a run of `gensor-tune`; return its seconds and those of its stages."""
    out = folder / "out.json"
    read(row, folder)  # writes the shapes file
    command = [sys.executable, "-c", "from gensor_tuner.cli.start import main; main()", "--arch", arch]
    command += ["--shapes", str(folder / "shape.csv")]
    command += ["--db", str(folder / "whole.db"), "--json", str(out)]
    environment = {**os.environ, "HOME": str(folder), "GENSOR_CACHE_DIR": str(folder / "whole")}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line = json.loads(out.read_text(encoding="utf-8"))
    ratio = line["predicted_us"] / line["bound_us"]
    return {"seconds": seconds, "processor": processor, "stages": line["seconds"], "over_bound": ratio}


def run(row: Row, arch: str, warm: Process, ways: Sequence[str]) -> dict[str, Any]:
    """Return the seconds of one shape, each way."""
    found: dict[str, Any] = {"shape": ",".join(row.values()), "arch": arch}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload, more = read(row, folder), other_size(row)
        other = read(more, folder) if more is not None else None
        if workload is None:
            raise ValueError(f"no workload: {row}")
        if "cold" in ways:
            began = time.perf_counter()
            process = Process(folder / "cold")
            _, _ = process.ask(workload, arch, folder / "cold.db")
            found["cold"] = {"seconds": time.perf_counter() - began, "processor": process.processor()}
            process.close()
        if "warm" in ways or "known" in ways:
            found["warm"] = dict(
                zip(("seconds", "processor"), warm.ask(workload, arch, folder / "warm.db"), strict=True)
            )
        if "known" in ways and other is not None and other.class_key() == workload.class_key():
            asked = warm.ask(other, arch, folder / "warm.db")
            found["known"] = dict(zip(("seconds", "processor"), asked, strict=True))
        if "whole" in ways:
            found["whole"] = whole(row, arch, folder)
    return found


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return percentiles over the shapes: by way, and by wall or processor seconds."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for way in WAYS:
        for kind in ("seconds", "processor"):
            values = [row[way][kind] for row in rows if way in row]
            if values:
                quantiles = {f"p{q}": float(np.percentile(values, q)) for q in (50, 95, 100)}
                found.setdefault(way, {})[kind] = {"shapes": len(values), **quantiles}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.new_class", description=__doc__.splitlines()[0])
    made.add_argument("--arch", nargs="+", default=["sm_87"], help="architectures to tune every shape for")
    made.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="ways to ask (default: all)")
    made.add_argument("--shapes", type=int, default=40, help="number of shapes (default %(default)s)")
    made.add_argument("--json", type=Path, default=RESULT, help="file for the results (default %(default)s)")
    options = made.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        warm = Process(Path(name, "warm"))
        try:
            warm.ask(_other_class(Path(name)), options.arch[0], Path(name, "before.db"))
            for arch in options.arch:
                for shape in shapes()[: options.shapes]:
                    rows.append(run(shape, arch, warm, options.ways))
                    times = "  ".join(f"{way} {rows[-1][way]['seconds']:5.2f} s" for way in WAYS if way in rows[-1])
                    print(f"{times}  {arch}  {rows[-1]['shape']}", flush=True)
        finally:
            warm.close()
    found = figures(rows)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"figures": found, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    for way, kinds in found.items():
        for kind, quantiles in kinds.items():
            print(f"{way:6} {kind:9}", "  ".join(f"{name} {value:.2f}" for name, value in quantiles.items()))
    return 0


def _other_class(folder: Path) -> Workload:
    """Return a Workload of a class that no shape has, which warms the caches."""
    workload = read({"op": "softmax", "dtype": "fp64", "shape": "64x64", "axes": "1"}, folder)
    assert workload is not None
    return workload


if __name__ == "__main__":
    sys.exit(main())
