"""Total time of tuning a shape of a new class: `python -m benchmarks.new_class`.

Each shape is a run of `gensor-tune` of its own, from the start of Python to the last row, with an empty database and
cold caches: even the emulator is compiled anew. Shapes differ in dtype, layout, alignment, size and epilogue.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HEADER = "op,dtype,m,n,k,batch,trans_a,trans_b,epilogue\n"
SHAPES = (
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
RESULT = Path(__file__).resolve().parent / "results" / "new_class.json"


def run(shape: str, arch: str) -> dict[str, object]:
    """Tune one shape in a process of its own; return the seconds of the process and of its stages."""
    with tempfile.TemporaryDirectory() as folder:
        shapes, out = Path(folder, "shapes.csv"), Path(folder, "out.json")
        shapes.write_text(HEADER + shape + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "gensor_tuner.cli.app", "--arch", arch, "--shapes", str(shapes)]
        command += ["--db", str(Path(folder, "new.db")), "--json", str(out)]
        environment = {**os.environ, "HOME": folder, "GENSOR_CACHE_DIR": str(Path(folder, "cache"))}
        began = time.perf_counter()
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - began
        line = json.loads(out.read_text(encoding="utf-8"))
    ratio = line["predicted_us"] / line["bound_us"]
    return {"shape": shape, "arch": arch, "seconds": seconds, "stages": line["seconds"], "over_bound": ratio}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.new_class", description=__doc__.splitlines()[0])
    made.add_argument("--arch", nargs="+", default=["sm_87"], help="architectures to tune every shape for")
    made.add_argument("--json", type=Path, default=RESULT, help="file for the results (default %(default)s)")
    options = made.parse_args(arguments)
    rows = []
    for arch in options.arch:
        for shape in SHAPES:
            rows.append(run(shape, arch))
            print(f"{rows[-1]['seconds']:6.1f} s  {arch}  {shape}", flush=True)
    seconds = np.array([row["seconds"] for row in rows], float)
    quantiles = {f"p{q}": float(np.percentile(seconds, q)) for q in (50, 95, 100)}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"seconds": quantiles, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print("  ".join(f"{name} {value:.1f} s" for name, value in quantiles.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
