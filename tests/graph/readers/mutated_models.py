"""Models of every served ONNX operator, changed at random: a result or an error of the package, nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto

from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model, load
from tests.graph.lowerings.onnx_versions import model_of, older_cases

#: Values of fields by the kind of field.
INTS = (0, -1, 1, 2, 7, 13, 99, 255, 2**20, 2**30, -(2**30), 2**31, -(2**31) - 1, 2**62, -(2**63))
NUMBERS = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "\x1b[2J\n", "x" * 300, *"EVIL SAME_UPPER absent x0 y0 n -1 own ai.onnx ai.onnx.ml Relu Concat".split())
TEXTS += ("Split", "Reshape", "Gather", "Slice", "Constant")
#: Values of texts, and of constants of one number.
BYTES = (b"", b"EVIL", b"\xff\x1b[2J\n", b"SAME_UPPER", b"x" * 300, *(np.int64(each).tobytes() for each in INTS))
#: Elements that a mutated model may be called with.
MOST_ELEMENTS = 1 << 16


def messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in value if hasattr(value, "extend") else (value,):
                yield from messages(each)


def mutate(rng: random.Random, model: ModelProto) -> bytes:
    """Return a model, changed, as the bytes of a file."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with suppress(Exception):  # a value that the field does not take
            _change(rng, rng.choice(list(messages(model))))
    data = bytearray(model.SerializeToString())
    if rng.random() < 0.1:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _change(rng: random.Random, message: Any) -> None:
    """Clear or set a field; shorten a list, repeat or change an element, or add one."""
    fields = [field for field, _ in message.ListFields()] if rng.random() < 0.85 else []
    field = rng.choice(fields or message.DESCRIPTOR.fields)
    value, is_message = getattr(message, field.name), field.type == field.TYPE_MESSAGE
    if not hasattr(value, "extend"):
        if is_message or rng.random() < 0.2:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _value(rng, field))
        return
    what, place = rng.randrange(5), rng.randrange(len(value) or 1)
    if what < 2:
        del value[place : None if what == 0 else place + 1]
    elif what == 2 and value:
        value.append(value[place])
    elif is_message:
        value.add()
    else:
        value[place : place + 1] = [_value(rng, field)]


def _value(rng: random.Random, field: FieldDescriptor) -> Any:
    if field.type == field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    values = {field.TYPE_STRING: TEXTS, field.TYPE_BYTES: BYTES, field.TYPE_FLOAT: NUMBERS}
    return rng.choice(values.get(field.type, INTS))


def draw_file(number: int, seed: int) -> tuple[str, bytes]:
    chooser = random.Random(f"{seed} {number}")
    case = chooser.choice(older_cases())
    return str(case), mutate(random.Random(f"{seed} {number}"), model_of(case))


def outcome(data: bytes) -> tuple[str, str]:
    """Return the class of what became of a file, "" for what may not happen, and a text."""
    try:
        model = load(data)
        inputs = _inputs(model)
        if inputs is None:
            return "large", ""
        with np.errstate(all="ignore"):
            model(**inputs)
        return "computed", ""
    except (GensorError, DecodeError) as error:
        text = str(error)
        return (type(error).__name__ if text.isprintable() and len(text) < 2000 else ""), text
    except Exception as error:
        return "", f"{type(error).__name__}: {str(error)[:200]}"


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
