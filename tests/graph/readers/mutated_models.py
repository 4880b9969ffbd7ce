"""Models of every served ONNX operator, changed at random: a result or an error of the package, nothing else.

`python -m tests.graph.readers.mutated_models --seconds 600` draws for so long and prints what else comes out.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from tqdm import tqdm

import gensor_kernels
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model, load
from tests import campaign_size
from tests.graph.lowerings.drawn_nodes import draw_case, model_of, versions

INTS = (0, -1, 1, 2, 7, 255, 2**20, 2**30, -(2**30), 2**31, -(2**31) - 1, 2**62, -(2**63))
FLOATS = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (b"", b"EVIL", b"\xff\x1b[2J\n", b"SAME_UPPER", b"x" * 300)
#: Types of elements, known and unknown.
TYPES = (*TensorProto.DataType.values(), 99)
#: Elements that a mutated model may be called with.
MOST_ELEMENTS = 1 << 16


class Mutator:
    """Changes of one model."""

    def __init__(self, seed: str):
        self.random = random.Random(seed)

    def mutate(self, model: ModelProto) -> bytes:
        """Return a model, changed, as the bytes of a file."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            change = self.random.choice(
                (self.attribute, self.attribute, self.edges, self.tensor, self.value, self.frame)
            )
            with suppress(Exception):  # after an earlier change there may be nothing to change, or no array
                change(model)
        data = bytearray(model.SerializeToString())
        if self.random.random() < 0.1:
            for _ in range(self.random.randint(1, 3)):
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(data)

    def attribute(self, model: ModelProto) -> None:
        """Remove, double, retype or change an attribute, or add one that the operator may have."""
        node = self.random.choice(model.graph.node)
        if not node.attribute or self.random.random() < 0.15:
            name = self.random.choice(("axis", "auto_pad", "pads", "strides", "kernel_shape", "mode", "value", "group"))
            node.attribute.append(helper.make_attribute(name, self.random.choice((-7, 1.5, b"EVIL", [2**40] * 4))))
            return
        each = self.random.choice(node.attribute)
        what = self.random.randrange(8)
        if what == 0:
            node.attribute.remove(each)
        elif what == 1:
            node.attribute.append(each)
        elif what == 2:
            each.type = self.random.choice(AttributeProto.AttributeType.values())
        elif each.ints or each.floats:
            self._numbers(each.ints or each.floats, INTS if each.ints else FLOATS)
        elif each.type == AttributeProto.FLOAT:
            each.f = self.random.choice(FLOATS)
        elif each.type == AttributeProto.STRING:
            each.s = self.random.choice(TEXTS)
        elif each.type == AttributeProto.TENSOR:
            self._tensor(each.t)
        else:
            each.i = self.random.choice(INTS)

    def _numbers(self, numbers: Any, extremes: Any) -> None:
        what = self.random.randrange(4)
        if what == 0:
            numbers.append(self.random.choice(extremes))
        elif what == 1:
            del numbers[self.random.randrange(len(numbers)) :]
        else:
            numbers[self.random.randrange(len(numbers))] = self.random.choice(extremes)

    def edges(self, model: ModelProto) -> None:
        """Drop, double, rename or swap inputs and outputs of the node, or rename its operator."""
        node = self.random.choice(model.graph.node)
        names = self.random.choice((node.input, node.input, node.output))
        what = self.random.randrange(6)
        if what == 0 and names:
            del names[self.random.randrange(len(names))]
        elif what == 1:
            names.append(self.random.choice([*names, "", "absent"]))
        elif what == 2 and names:
            names[self.random.randrange(len(names))] = self.random.choice(("", "absent", "x0", "y0", "\x1b[2J\n"))
        elif what == 3:
            shuffled = self.random.sample(list(node.input), len(node.input))
            node.input[:] = shuffled
        elif what == 4:
            node.op_type = self.random.choice(("", "Relu", "Concat", "Split", "Reshape", "Gather", "Slice", "Constant"))
        else:
            node.domain = self.random.choice(("own", "ai.onnx.ml", "ai.onnx"))

    def tensor(self, model: ModelProto) -> None:
        """Change a constant; or make one of an input."""
        graph = model.graph
        if graph.initializer:
            self._tensor(self.random.choice(graph.initializer))
        elif graph.input:
            name = graph.input[-1].name
            graph.initializer.append(numpy_helper.from_array(np.int64([self.random.choice(INTS)]), name))

    def _tensor(self, tensor: TensorProto) -> None:
        what, array = self.random.randrange(6), numpy_helper.to_array(tensor)
        if what == 0:
            tensor.data_type = self.random.choice(TYPES)
        elif what == 1:
            self._numbers(tensor.dims, INTS) if tensor.dims else tensor.dims.append(3)
        elif what == 2:
            tensor.raw_data = tensor.raw_data[:-1]
        elif what == 3 and array.size and array.dtype.kind in "iu":
            changed, most = array.copy(), np.iinfo(array.dtype)
            changed.flat[self.random.randrange(array.size)] = min(max(self.random.choice(INTS), most.min), most.max)
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
        elif what == 4:
            tensor.CopyFrom(numpy_helper.from_array(array.ravel()[: self.random.randrange(3)], tensor.name))
        else:
            tensor.CopyFrom(numpy_helper.from_array(array[None], tensor.name))

    def value(self, model: ModelProto) -> None:
        """Change the declared type or shape of an input or a result."""
        value = self.random.choice([*model.graph.input, *model.graph.output])
        tensor, what = value.type.tensor_type, self.random.randrange(6)
        if what == 0:
            tensor.elem_type = self.random.choice(TYPES)
        elif what == 1 and tensor.shape.dim:
            self.random.choice(tensor.shape.dim).dim_value = self.random.choice(INTS)
        elif what == 2 and tensor.shape.dim:
            self.random.choice(tensor.shape.dim).dim_param = self.random.choice(("n", "?", "-1", "\x1b[2J"))
        elif what == 3 and tensor.shape.dim:
            del tensor.shape.dim[-1]
        elif what == 4:
            tensor.shape.dim.add().dim_value = self.random.randrange(3)
        else:
            value.name = self.random.choice(("", "x0", "y0", "z"))

    def frame(self, model: ModelProto) -> None:
        """Change versions, and lists of the graph."""
        graph, what = model.graph, self.random.randrange(7)
        if what == 0:
            model.opset_import[0].version = self.random.choice((1, 5, 9, 13, 24, 9999, 2**40, -1))
        elif what == 1:
            model.ir_version = self.random.choice((0, 1, 3, 13, 99))
        elif what == 2:
            graph.node.append(graph.node[0])
        elif what == 3 and graph.input:
            del graph.input[-1]
        elif what == 4:
            graph.output.append(graph.output[0])
        elif what == 5:
            del graph.node[:]
        else:
            del graph.output[:]


def draw_file(number: int, seed: int) -> tuple[str, bytes]:
    """Return a description of a mutated model, and its bytes."""
    chooser = random.Random(f"{seed} {number}")
    case = draw_case(*chooser.choice(versions()), number, seed)
    return str(case), Mutator(f"{seed} {number}").mutate(model_of(case))


def outcome(data: bytes) -> tuple[str, str]:
    """Return the class of what became of a file, "" for what may not happen, and a text."""
    try:
        model = load(data)
    except (GensorError, DecodeError) as error:
        return _describe(error)
    except Exception as error:
        return "", f"load: {type(error).__name__}: {str(error)[:200]}"
    inputs = _inputs(model)
    if inputs is None:
        return "large", ""
    try:
        with np.errstate(all="ignore"):
            model(**inputs)
    except GensorError as error:
        return _describe(error)
    except Exception as error:
        return "", f"call: {type(error).__name__}: {str(error)[:200]}"
    return "computed", ""


def _describe(error: Exception) -> tuple[str, str]:
    text = str(error)
    return (type(error).__name__ if text.isprintable() and len(text) < 2000 else ""), text


def _inputs(model: Model) -> dict[str, np.ndarray] | None:
    """Return ones for all inputs, or None if the file declares too many."""
    found, elements = {}, 0
    for name, spec in model.inputs.items():
        shape = [each if isinstance(each, int) else 2 for each in ((2, 2) if spec.shape is None else spec.shape)]
        elements += int(np.prod(shape, dtype=float))
        if elements > MOST_ELEMENTS:
            return None
        found[name] = np.ones(shape, spec.dtype)
    return found


def main() -> int:
    """Draw for some time; 1 where something is raw."""
    parser = argparse.ArgumentParser(prog="python -m tests.graph.readers.mutated_models", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    parser.add_argument("--verbose", action="store_true", help="also print errors of the package")
    options = parser.parse_args()
    count: Counter[str] = Counter()
    number, end = options.first, time.monotonic() + options.seconds
    warnings.simplefilter("ignore")
    with gensor_kernels.emulated("sm_87"), tqdm(disable=None) as bar:
        while time.monotonic() < end:
            case, data = draw_file(number, campaign_size.SEED)
            what, text = outcome(data)
            count[what or "RAW"] += 1
            if not what or options.verbose:
                print(f"{number}: {what or 'RAW'}: {case}: {text!r}", flush=True)
            number += 1
            bar.update()
    print(f"GENSOR_CAMPAIGN_SEED={campaign_size.SEED}: {number - options.first} models, {dict(count)}")
    return 1 if count["RAW"] else 0


if __name__ == "__main__":
    sys.exit(main())
