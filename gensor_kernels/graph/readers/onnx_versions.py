"""Operators of old versions of the ONNX standard, written in the operators of a newer one.

onnx's own converter changes results (a Resize of version 10 loses its coordinates, a Hardmax of version 12 its two
dimensions), so that every step is a function here.
"""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.lowerings.resize import FLOOR_OR_CEIL

from .onnx_lifting import Step, below


@below(7, *["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"])
def _broadcast(step: Step) -> None:
    """Align the second operand with an axis of the first."""
    axis = step.pop("axis")
    if step.pop("broadcast", 0) and axis is not None:
        rank, own = step.rank(0), step.rank(1)
        trailing = rank - axis % rank - own
        if trailing > 0:
            axes = step.constant(range(own, own + trailing))
            step.input(1, step.add("Unsqueeze", step.node.input[1], axes))


@below(7, "PRelu")
def _channels(step: Step) -> None:
    """Align a vector of slopes with the channels."""
    if step.rank(1) == 1 and step.rank(0) > 2:
        axes = step.constant(range(1, step.rank(0) - 1))
        step.input(1, step.add("Unsqueeze", step.node.input[1], axes))


@below(7, "Gemm")
def _gemm(step: Step) -> None:
    step.pop("broadcast")


@below(20, "DFT")
def _dft(step: Step) -> None:
    step.input(2, step.constant(step.pop("axis", 1)))


@below(20, "GridSample")
def _grid_sample(step: Step) -> None:
    mode = step.pop("mode", "bilinear")
    step.set("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


@below(16, "RoiAlign")
def _roi_align(step: Step) -> None:
    step.set("coordinate_transformation_mode", "output_half_pixel")


@below(14, "BatchNormalization")
def _batch_norm(step: Step) -> None:
    training = any(step.node.output[1:]) or (step.lifting.version < 7 and not step.pop("is_test", 0))
    if training:
        raise step.refusal("models are run for inference; export the model in evaluation mode")
    if not step.pop("spatial", 1):
        raise step.refusal("statistics of every element (spatial=0) are not served, only of channels")
    del step.node.output[1:]


@below(12, "Dropout")
def _dropout(step: Step) -> None:
    step.pop("ratio")
    if step.lifting.version < 7 and not step.pop("is_test", 0):
        raise step.refusal("models are run for inference; export the model in evaluation mode")
    if step.lifting.version < 10 and any(step.node.output[1:]):  # its mask has the dtype of the data
        step.then("CastLike", step.node.input[0], output=1)


@below(6, "Cast")
def _cast(step: Step) -> None:
    from onnx import TensorProto

    step.set("to", TensorProto.DataType.Value(step.pop("to")))


@below(11, "Clip")
def _clip(step: Step) -> None:
    for place, name in ((1, "min"), (2, "max")):
        bound = step.pop(name)
        if bound is not None:
            step.input(place, step.scalar_like(bound, step.node.input[0]))


@below(4, "Concat")
def _concat(step: Step) -> None:
    step.set("axis", step.pop("axis", 1))


@below(13, "Softmax", "LogSoftmax", "Hardmax")
def _two_dimensions(step: Step) -> None:
    """Take the axis and all after it as one."""
    axis, x = step.pop("axis", 1), step.node.input[0]
    step.set("axis", -1)
    rank = step.lifting.rank(x)
    if axis != -1 and (rank is None or axis != rank - 1):
        step.input(0, step.add("Flatten", x, axis=axis))
        step.then("Reshape", step.add("Shape", x))


@below(7, "GRU", "LSTM", "RNN")
def _recurrent(step: Step) -> None:
    step.pop("output_sequence")  # whether there is a first result, which its name says


@below(11, "Pad")
def _pad(step: Step) -> None:
    step.input(1, step.constant(step.pop("paddings" if step.lifting.version < 2 else "pads")))
    if (value := step.pop("value", 0.0)) != 0:
        step.input(2, step.scalar_like(value, step.node.input[0]))


@below(13, "ReduceSum", "Squeeze", "Unsqueeze")
@below(
    18, *(f"Reduce{each}" for each in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"])
)
def _axes(step: Step) -> None:
    step.attribute_to_input("axes", 1)


@below(5, "Reshape")
def _reshape(step: Step) -> None:
    step.attribute_to_input("shape", 1)


@below(10, "Upsample")
def _upsample(step: Step) -> None:
    if step.lifting.version < 7:
        scales = [1, 1, step.pop("height_scale"), step.pop("width_scale")]
    else:
        scales = step.pop("scales")
    name = step.constant(scales, np.float32) if step.lifting.version < 9 else step.node.input[1]
    _to_resize(step, name, "floor")


@below(11, "Resize")
def _resize(step: Step) -> None:
    _to_resize(step, step.node.input[1], FLOOR_OR_CEIL)


@below(13, "Resize")
def _resize_to_sizes(step: Step) -> None:
    if len(step.node.input) > 3 and step.node.input[3]:
        step.input(2, "")  # scales were no option: they had no elements


def _to_resize(step: Step, scales: str, rounding: str) -> None:
    step.node.op_type = "Resize"
    mode = step.pop("mode", "nearest")
    step.set("mode", {"bilinear": "linear"}.get(mode, mode))
    step.set("coordinate_transformation_mode", "asymmetric")
    step.set("nearest_mode", rounding)
    step.input(1, "")
    step.input(2, scales)


@below(9, "Scan")
def _scan(step: Step) -> None:
    raise step.refusal("Scan of version 8 is not served; export the model with a newer version of the operators")


@below(11, "Scatter")
def _scatter(step: Step) -> None:
    step.node.op_type = "ScatterElements"


@below(6, "Selu")
def _selu(step: Step) -> None:
    step.set("alpha", step.pop("alpha", 1.6732))
    step.set("gamma", step.pop("gamma", 1.0507))


@below(10, "Slice")
def _slice(step: Step) -> None:
    for place, name in ((1, "starts"), (2, "ends"), (3, "axes")):
        step.attribute_to_input(name, place)


@below(18, "Split")
def _split(step: Step) -> None:
    if step.lifting.version < 13:
        step.attribute_to_input("split", 1)
    if not any(step.node.input[1:]):
        step.set("num_outputs", len(step.node.output))


@below(6, "Tile")
def _tile(step: Step) -> None:
    raise step.refusal("Tile of version 1 is not served; export the model with a newer version of the operators")


@below(10, "TopK")
def _top_k(step: Step) -> None:
    step.input(1, step.constant([step.pop("k")]))
