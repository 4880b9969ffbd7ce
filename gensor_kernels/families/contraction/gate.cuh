// Gated products: C = f(A * G + g) * (A * U + u). B is two matrices of one layout: the gate G, followed by U. A thread
// accumulates the same outputs of both products. All other parts of a kernel see a matrix B with the columns of C.
//
// Include this header after the family's parameters: it uses GATE, GATE_BIAS, IN_TYPE and ACC_TYPE.
#pragma once
#include "epilogue.cuh"

constexpr int MATRICES = GATE ? 2 : 1; // matrices B of a product

#if GATE
static_assert(is_curve(GATE) || GATE == EPILOGUE_RELU, "A gate is a curve or relu.");
static_assert(!same_type<ACC_TYPE, i32> && !is_complex<ACC_TYPE>, "Gates are functions of real numbers.");
static_assert(!A_WINDOW && !B_WINDOW, "A gate and a window have the same bytes of Params.");

// Returns an element of the bias of the gate (side 0) or of the other matrix (side 1).
DEVICE ACC_TYPE gate_bias(const Params &params, int side, i32 column) {
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(params.d) + (side * params.d_m + column * params.d_n);
    return convert<ACC_TYPE>(load_global<sizeof(IN_TYPE)>(from, within(column, params.n)).template get<IN_TYPE>(0));
}

// Computes gate[i] = f(gate[i]) * other[i], where column(i) is the column of C.
template <int COUNT, class Columns>
DEVICE void apply_gate(const Params &params, ACC_TYPE (&gate)[COUNT], ACC_TYPE (&other)[COUNT], const Columns &column) {
    cover("gate");
    if constexpr (GATE_BIAS) {
        UNROLL for (int i = 0; i < COUNT; ++i) {
            gate[i] = gate[i] + gate_bias(params, 0, column(i));
            other[i] = other[i] + gate_bias(params, 1, column(i));
        }
    }
    UNROLL for (int i = 0; i < COUNT; ++i) {
        if constexpr (is_curve(GATE))
            gate[i] = curve(GATE, gate[i]) * other[i];
        else
            gate[i] = (gate[i] < ACC_TYPE(0) ? ACC_TYPE(0) : gate[i]) * other[i];
    }
}
#endif
