// Prologues: element-wise operations on an operand of a product, applied before its elements are stored to shared
// memory. If MATERIALISED, a previous launch applies them and stores the prepared operand in the workspace.
//
// Include this header after the family's parameters: it uses IN_TYPE and ACC_TYPE as well as its own. Values are
// computed in float (doubles in double) and rounded once to IN_TYPE. The vectors d and e have an element per k of a
// matrix or per channel of a window. Elements of a window outside the image stay zero.
#pragma once
#include "epilogue.cuh"

// A family without prologues does not declare these parameters.
#pragma parameter PROLOGUE 0
#pragma parameter PROLOGUE_OF_B 0
#pragma parameter MATERIALISED 0
#pragma parameter D_TYPE float
#pragma parameter E_TYPE float
#pragma parameter D_VECTOR 4
#pragma parameter E_VECTOR 4

constexpr bool INLINED_A = PROLOGUE && !MATERIALISED && !PROLOGUE_OF_B;
constexpr bool INLINED_B = PROLOGUE && !MATERIALISED && PROLOGUE_OF_B;

template <int INDEX>
constexpr i32 prologue_code = INDEX < MAX_EPILOGUE_STEPS ? (i32)((u32)(PROLOGUE) >> (5 * INDEX) & 31) : 0;

// The number of operations that read a vector, among the first COUNT operations.
template <int COUNT>
constexpr int vectors_before = vectors_before<COUNT - 1> + (takes_operand(prologue_code<COUNT - 1>) ? 1 : 0);
template <>
constexpr int vectors_before<0> = 0;
constexpr int VECTORS = vectors_before<MAX_EPILOGUE_STEPS>;
static_assert(VECTORS <= 2, "A prologue reads two vectors at most.");

// RUNS runs of EACH adjacent elements of a vector of type T, in the pieces in which they are loaded.
template <class T, int ALIGN, int RUNS, int EACH>
struct VectorRuns {
    static constexpr int BYTES = minimum(EACH * (int)sizeof(T), ALIGN), PIECES = EACH * (int)sizeof(T) / BYTES;
    Vec<BYTES> raw[RUNS * PIECES];

    MEMBER void load(int run, gptr<T> from, bool inside) {
        UNROLL for (int p = 0; p < PIECES; ++p) raw[run * PIECES + p] =
            load_global<BYTES>(from + p * (BYTES / (int)sizeof(T)), inside);
    }
    template <class V>
    MEMBER V get(int run, int i) const {
        constexpr int IN_PIECE = BYTES / (int)sizeof(T);
        return convert<V>(raw[run * PIECES + i / IN_PIECE].template get<T>(i % IN_PIECE));
    }
};

// A thread's part of the vectors, RUNS runs of EACH elements, for the elements that it prepares.
template <int RUNS, int EACH>
struct PrologueRuns {
    typedef ACC_TYPE Value;
    gptr<D_TYPE> first;
    gptr<E_TYPE> second;
    Value scale;
    VectorRuns<D_TYPE, D_VECTOR, RUNS, EACH> d;
    VectorRuns<E_TYPE, E_VECTOR, RUNS, EACH> e;

    MEMBER PrologueRuns(const Params &params, const Batch &batch)
        : first(gptr<D_TYPE>(params.d) + batch_offset(params.d_batch, batch)),
          second(gptr<E_TYPE>(params.prepared.second) + batch_offset(params.d_batch, batch)),
          scale((Value)params.prepared.scale) {}

    // Loads the elements of the vectors from `channel` on, zeros if not `inside`.
    MEMBER void load(int run, i32 channel, bool inside) {
        if constexpr (VECTORS > 0)
            d.load(run, first + channel, inside);
        if constexpr (VECTORS > 1)
            e.load(run, second + channel, inside);
    }
    // Applies all operations to values of a run. WIDE: each value has its own element of a vector; else all share one.
    template <bool WIDE, int INDEX = 0, int COUNT>
    MEMBER void apply(int run, Value (&v)[COUNT]) const {
        constexpr i32 CODE = prologue_code<INDEX>;
        if constexpr (CODE != 0) {
            if constexpr (is_curve(CODE)) {
                UNROLL for (int i = 0; i < COUNT; ++i) v[i] = curve(CODE, v[i]);
            } else {
                Value x[COUNT] = {};
                if constexpr (takes_operand(CODE)) {
                    UNROLL for (int i = 0; i < COUNT; ++i) {
                        if constexpr (vectors_before<INDEX> == 0)
                            x[i] = d.template get<Value>(run, WIDE ? i : 0);
                        else
                            x[i] = e.template get<Value>(run, WIDE ? i : 0);
                    }
                }
                apply_arithmetic<IN_TYPE>(CODE, v, x, scale);
            }
            apply<WIDE, INDEX + 1>(run, v);
        }
    }
    // Applies the operations to the elements of a load. If not `live`, the result is zero.
    template <bool WIDE, int BYTES>
    MEMBER Vec<BYTES> prepare(int run, const Vec<BYTES> &loaded, bool live) const {
        constexpr int COUNT = BYTES / (int)sizeof(IN_TYPE);
        cover("prologue");
        if (!live)
            cover("prologue_outside");
        Value v[COUNT];
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = convert<Value>(loaded.template get<IN_TYPE>(i));
        apply<WIDE>(run, v);
        Vec<BYTES> result = Vec<BYTES>::zero();
        UNROLL for (int i = 0; i < COUNT; ++i) result.set(i, live ? convert<IN_TYPE>(v[i]) : IN_TYPE{});
        return result;
    }
};

// Prepares the elements of an operand that a thread loads. WINDOWED: bits record which of LOADS are in the image.
template <bool ON, int LOADS, bool WINDOWED, int RUNS, int EACH, bool WIDE>
struct Preparing {
    PrologueRuns<RUNS, EACH> runs;
    u64 live;
    static_assert(LOADS <= 64, "A bit per load, inside the image or not, must fit 64 bits.");

    MEMBER Preparing(const Params &params, const Batch &batch) : runs(params, batch), live(0) {}
    // Called before the loads of a step.
    MEMBER void begin() { live = 0; }
    // Called for load number `load`, of elements of run `run`; the first of a run loads the vectors from `channel` on.
    MEMBER void request(int load, int run, bool first, i32 channel, bool inside, bool in_image) {
        if (first)
            runs.load(run, channel, inside);
        if constexpr (WINDOWED)
            live |= (u64)in_image << load;
    }
    template <int BYTES>
    MEMBER Vec<BYTES> prepare(int load, int run, const Vec<BYTES> &loaded) const {
        return runs.template prepare<WIDE>(run, loaded, !WINDOWED || (live >> load & 1));
    }
};
template <int LOADS, bool WINDOWED, int RUNS, int EACH, bool WIDE>
struct Preparing<false, LOADS, WINDOWED, RUNS, EACH, WIDE> {
    MEMBER Preparing(const Params &, const Batch &) {}
    MEMBER void begin() {}
    MEMBER void request(int, int, bool, i32, bool, bool) {}
    template <int BYTES>
    MEMBER Vec<BYTES> prepare(int, int, const Vec<BYTES> &loaded) const {
        return loaded;
    }
};
