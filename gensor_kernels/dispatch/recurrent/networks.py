"""`lstm` and `gru`: the public functions. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.interop import like, public
from gensor_kernels.dispatch.calls.ends import lengths_of
from gensor_kernels.dispatch.calls.whole import real
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import DeviceArray, Precision


@public
def lstm(
    x: ArrayLike,
    w_ih: ArrayLike,
    w_hh: ArrayLike,
    b_ih: ArrayLike | None = None,
    b_hh: ArrayLike | None = None,
    hx: Sequence[ArrayLike | None] | None = None,
    *,
    lengths: ArrayLike | Sequence[int] | None = None,
    reverse: bool = False,
    batch_first: bool = False,
    peepholes: ArrayLike | None = None,
    clip: float | None = None,
    activations: Sequence[str] = ("sigmoid", "tanh", "tanh"),
    precision: Precision | None = None,
) -> tuple[DeviceArray, tuple[DeviceArray, DeviceArray]]:
    """Compute a layer of long short-term memory over sequences, in one or both directions.

    The signature is its own; weights, biases and states are those of `torch.nn.LSTM`
    with one layer, with the gates in PyTorch's order: input, forget, cell, output (ONNX
    has input, output, forget, cell).

    Parameters
    ----------
    x : array, shape (steps, batch, inputs), or (steps, inputs) of one sequence
        Input; with `batch_first` (batch, steps, inputs).
    w_ih : array, shape (4 hidden, inputs) or (directions, 4 hidden, inputs)
        Weights of the input, `weight_ih_l0`. With two directions, those of
        `weight_ih_l0_reverse` are the second.
    w_hh : array, shape (4 hidden, hidden) or (directions, 4 hidden, hidden)
        Weights of the state h, `weight_hh_l0`.
    b_ih, b_hh : array, shape (4 hidden,) or (directions, 4 hidden), optional
        Biases; 0 by default.
    hx : (h, c), arrays of shape (directions, batch, hidden), optional
        Initial states, by default 0. One sequence has (directions, hidden).
    lengths : array or sequence of int, shape (batch,), optional
        Steps of each sequence, from 0 to `steps`, all by default. No order is needed.
    reverse : bool, default False
        Whether the only direction begins at a sequence's last step.
    batch_first : bool, default False
        Whether `x` and the result begin with the batch. States do not.
    peepholes : array, shape (directions, 3 hidden), optional
        Weights of c in the gates input, forget and output (the last sees the new c).
    clip : float, optional
        Bound on the magnitude of what the gates' activations are applied to.
    activations : sequence of str, default ("sigmoid", "tanh", "tanh")
        Activations of the gates, of the cell's input and of its output: "sigmoid",
        "tanh" or "relu".
    precision : {None, "ieee", "tf32"}, optional
        Arithmetic of float32 as in `matmul`.

    Returns
    -------
    y : array, shape (steps, batch, directions * hidden)
        State h after each step, 0 past the end of a sequence, in the promoted dtype;
        with `batch_first` (batch, steps, ...).
    (h, c) : arrays of shape (directions, batch, hidden)
        States after the last step, which a next call takes as `hx`. A sequence of
        length 0 has the initial ones.

    Raises
    ------
    ValueError
        If shapes do not fit or an activation is unknown; for lengths that cannot be,
        where they are checked.
    TypeError
        If an operand is not an array of floats of this device.

    Notes
    -----
    The inputs of all steps and directions are one product, and all steps one launch
    where a kernel is predicted to be faster than launches step by step, which other
    activations take. Gates and c are computed in float32 (float64 for float64);
    h is rounded to the dtype of the result at every step.
    As in `grouped_matmul`, lengths on a GPU stay there, and are not checked: a step is
    computed where it is below the length.

    References
    ----------
    .. [1] S. Hochreiter and J. Schmidhuber, "Long short-term memory", Neural
       Computation 9 (1997).

    Examples
    --------
    Open gates add up the inputs, which the cell's tanh bounds by 1:

    >>> x = np.full((3, 1, 1), 9, "float32")
    >>> w_ih, w_hh = np.array([[9], [9], [9], [9]], "float32"), np.zeros((4, 1), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     y, (h, c) = gensor_kernels.lstm(x, w_ih, w_hh)
    >>> y.ravel().round(2), c.ravel()
    (array([0.76, 0.96, 1.  ], dtype=float32), array([3.], dtype=float32))
    """
    given = () if hx is None else tuple(hx)
    if len(given) not in (0, 2):
        raise ValueError(f"lstm: hx is a pair of states (h, c), not {len(given)} arrays")
    h, c = given or (None, None)
    arrays = (w_ih, w_hh, b_ih, b_hh, h, c, peepholes)
    form = _Form("lstm", activations, clip, bool(reverse), bool(batch_first))
    y, last_h, last_c = _layer(form, x, arrays, lengths, precision)
    return y, (last_h, last_c)


@like(lstm)
def gru(
    x: ArrayLike,
    w_ih: ArrayLike,
    w_hh: ArrayLike,
    b_ih: ArrayLike | None = None,
    b_hh: ArrayLike | None = None,
    hx: ArrayLike | None = None,
    *,
    lengths: ArrayLike | Sequence[int] | None = None,
    reverse: bool = False,
    batch_first: bool = False,
    linear_before_reset: bool = True,
    clip: float | None = None,
    activations: Sequence[str] = ("sigmoid", "tanh"),
    precision: Precision | None = None,
) -> tuple[DeviceArray, DeviceArray]:
    """Compute a layer of gated recurrent units over sequences, in one or both directions.

    The signature is its own; weights, biases and states are those of `torch.nn.GRU`
    with one layer, with the gates in PyTorch's order: reset, update, new (ONNX has
    update, reset, hidden).

    Parameters
    ----------
    w_ih : array, shape (3 hidden, inputs) or (directions, 3 hidden, inputs)
        Weights of the input.
    w_hh : array, shape (3 hidden, hidden) or (directions, 3 hidden, hidden)
        Weights of the state.
    b_ih, b_hh : array, shape (3 hidden,) or (directions, 3 hidden), optional
        Biases; 0 by default.
    hx : array, shape (directions, batch, hidden), optional
        Initial state; 0 by default. One sequence has (directions, hidden).
    linear_before_reset : bool, default True
        Whether the reset gate is applied to the product of the state and its bias, as in
        PyTorch and cuDNN, or to the state, as in the paper and by default in ONNX.
    activations : sequence of str, default ("sigmoid", "tanh")
        Activations of the gates and of the new state.

    Returns
    -------
    y : array, shape (steps, batch, directions * hidden)
        State after each step, as in `lstm`.
    h : array, shape (directions, batch, hidden)
        State after the last step.

    References
    ----------
    .. [1] K. Cho et al., "Learning phrase representations using RNN encoder-decoder",
       arXiv:1406.1078.

    Examples
    --------
    Without weights, each step halves the state:

    >>> x, w = np.zeros((3, 1, 1), "float32"), np.zeros((3, 1), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     y, h = gensor_kernels.gru(x, w, w, hx=np.ones((1, 1, 1), "float32"))
    >>> y.ravel()
    array([0.5  , 0.25 , 0.125], dtype=float32)
    """
    arrays = (w_ih, w_hh, b_ih, b_hh, hx, None, None)
    form = _Form("gru", activations, clip, bool(reverse), bool(batch_first), bool(linear_before_reset))
    y, last, _ = _layer(form, x, arrays, lengths, precision)
    return y, last


class _Form(NamedTuple):
    """How a layer computes, as its public function was called."""

    kind: str
    activations: Sequence[str]
    clip: Any
    reverse: bool
    batch_first: bool
    linear_before_reset: bool = False


def _layer(form: _Form, x: DeviceArray, arrays: Sequence[DeviceArray], lengths: Any, precision: Any) -> Any:
    """Return y and the last states of a layer; `arrays` are weights, biases, states and peepholes."""
    from gensor_kernels.dispatch.functions.recurrent import DEFAULTS, FUSED, PYTORCH, Cell

    from .layers import Network, walk

    kind, activations, clip, reverse, batch_first, linear_before_reset = form
    runtime = current_runtime()
    runtime.check_inputs((x, *arrays), None, ())
    names = (activations,) if isinstance(activations, str) else tuple(activations)
    if len(names) != len(DEFAULTS[kind]) or not set(names) <= set(FUSED):
        count = len(DEFAULTS[kind])
        raise ValueError(f"{kind}: activations are {count} of {', '.join(FUSED)}, not {shown(activations)}")
    if x.ndim not in (2, 3):
        raise ValueError(f"{kind}: x has the axes (steps, batch, inputs), or (steps, inputs), not {tuple(x.shape)}")
    w, r, w_bias, r_bias, h, c, peepholes = arrays
    w, r = (each[None] if each.ndim == 2 else each for each in (w, r))
    w_bias, r_bias, peepholes = (
        each[None] if each is not None and each.ndim == 1 else each for each in (w_bias, r_bias, peepholes)
    )
    is_one = x.ndim == 2
    if is_one:
        x, batch_first = x[:, None], False
        h, c = (each[:, None] if each is not None and each.ndim == 2 else each for each in (h, c))
    if lengths is not None:
        steps = x.shape[1] if batch_first else x.shape[0]
        lengths = lengths_of(runtime.device, "lengths", lengths, steps, "numbers of steps")
    network = Network(w, r, w_bias, r_bias, h, c, peepholes, lengths)
    both, bound = r.shape[0] == 2, None if clip is None else real("clip", clip)
    if reverse and both:
        raise ValueError(f"{kind}: reverse is for weights of one direction; of two, the second is always reversed")
    cells = [
        Cell(kind, PYTORCH, names, way, bound, linear_before_reset) for way in ((False, True) if both else (reverse,))
    ]
    found = walk(runtime, _call, x, network, cells, batch_first, precision)
    y = found.y.swapaxes(0, 1) if batch_first else found.y
    y = y.reshape(*y.shape[:2], y.shape[2] * y.shape[3])
    return tuple(None if each is None else each[:, 0] for each in (y, found.h, found.c)) if is_one else (y, *found[1:])


def _call(function: Any, *arrays: DeviceArray, **keywords: Any) -> DeviceArray:
    return function(*arrays, **keywords)
