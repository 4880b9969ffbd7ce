// y = program(x0, x1, ...), element by element, with operands that broadcast along any axis. Several results are parts
// of y, c_m elements apart.
//
// The elements of y are walked in VECTORs of neighbours along l, the innermost of RANK axes; i, j and k are the batch
// of Params. A thread computes ITEMS vectors, those of a block one block apart, so that a warp's accesses are adjacent,
// and loads all of them before it computes the first. Inputs are a, b, d, and then Params' tail.

#pragma parameter PROGRAM in_f4__out_0 // operators/expression/program.py
#pragma parameter FORMS 5      // two bits per operand, y last: 0 broadcasts along l, 1 is adjacent, 2 has a stride
#pragma parameter RANK 1       // axes of y: 1 to 4
#pragma parameter VECTOR 4     // elements of one access
#pragma parameter ITEMS 1      // vectors of a thread
#pragma parameter THREADS 256  // of a block
#pragma parameter MIN_BLOCKS 0 // blocks per SM promised to the compiler; 0 = none

#include "params.cuh"
#include "pointwise_math.cuh"

DEVICE constexpr bool power_of_two(int value) {
    return value > 0 && (value & (value - 1)) == 0;
}

enum { BROADCAST, ADJACENT, APART };

// A vector's position along all axes.
struct Spot {
    i32 i, j, k, column;
    bool inside;
};

DEVICE Spot find_spot(const Params &params, u32 vector) {
    Spot spot = {0, 0, 0, (i32)vector, within(vector, (u32)params.batch * (u32)params.tiles_n)};
    if constexpr (RANK > 1) {
        const Divided row = divided(vector, params.by.tiles);
        spot.k = (i32)row.quotient, spot.column = (i32)row.rest;
    }
    if constexpr (RANK > 2) {
        const Divided rest = divided((u32)spot.k, params.by.inner);
        spot.j = (i32)rest.quotient, spot.k = (i32)rest.rest;
    }
    if constexpr (RANK > 3) {
        const Divided rest = divided((u32)spot.j, params.by.middle);
        spot.i = (i32)rest.quotient, spot.j = (i32)rest.rest;
    }
    spot.column *= VECTOR;
    return spot;
}

// The address and the strides of an operand; RESULT_OPERAND is y.
enum { RESULT_OPERAND = INPUTS };
struct Place {
    u64 address;
    i64 i, j, k, column;
};
template <int OPERAND>
DEVICE Place place_of(const Params &params) {
    if constexpr (OPERAND == RESULT_OPERAND)
        return Place{params.c, params.c_batch[0], params.c_batch[1], params.c_batch[2], params.c_n};
    else if constexpr (OPERAND == 0)
        return Place{params.a, params.a_batch[0], params.a_batch[1], params.a_batch[2], params.a_k};
    else if constexpr (OPERAND == 1)
        return Place{params.b, params.b_batch[0], params.b_batch[1], params.b_batch[2], params.b_n};
    else if constexpr (OPERAND == 2)
        return Place{params.d, params.d_batch[0], params.d_batch[1], params.d_batch[2], params.d_n};
    else {
        constexpr int AT = 3 * (OPERAND - 3);
        const u64 outer = params.tail[AT + 1], inner = params.tail[AT + 2];
        return Place{params.tail[AT], (i32)outer, (i32)(outer >> 32), (i32)inner, (i32)(inner >> 32)};
    }
}

template <int OPERAND>
constexpr int form_of = FORMS >> (2 * OPERAND) & 3;

// The element of an operand at a vector's start.
template <int OPERAND, class T>
DEVICE gptr<T> first_element(const Place &place, const Spot &spot) {
    i64 offset = form_of<OPERAND> == BROADCAST  ? 0
                 : form_of<OPERAND> == ADJACENT ? (i64)spot.column
                                                : spot.column * place.column;
    if constexpr (RANK > 1)
        offset += spot.k * place.k;
    if constexpr (RANK > 2)
        offset += spot.j * place.j;
    if constexpr (RANK > 3)
        offset += spot.i * place.i;
    return gptr<T>(place.address) + offset;
}

// The inputs of a vector's elements, as they are in memory.
template <int COUNT>
struct Loaded {
    static constexpr int X = COUNT - 1;
    typedef stored_t<X> T;
    static constexpr int BYTES = form_of<X> == ADJACENT ? VECTOR * (int)sizeof(T) : (int)sizeof(T);
    static constexpr int LOADS = form_of<X> == APART ? VECTOR : 1;
    Loaded<COUNT - 1> others;
    Vec<BYTES> data[LOADS];

    MEMBER void load(const Params &params, const Spot &spot) {
        others.load(params, spot);
        const Place place = place_of<X>(params);
        const gptr<T> from = first_element<X, T>(place, spot);
        UNROLL for (int each = 0; each < LOADS; ++each) data[each] =
            load_global<BYTES>(from + each * place.column, spot.inside);
    }
    MEMBER void give(Values &values, int element) const {
        others.give(values, element);
        const T x = form_of<X> == APART ? data[form_of<X> == APART ? element : 0].template get<T>(0)
                                        : data[0].template get<T>(form_of<X> == ADJACENT ? element : 0);
        if constexpr (is_narrow(dtype_of(X)))
            values.of<X>() = to_float(x);
        else if constexpr (dtype_of(X) == B1)
            values.of<X>() = x != 0;
        else
            values.of<X>() = x;
    }
};
template <>
struct Loaded<0> {
    MEMBER void load(const Params &, const Spot &) {}
    MEMBER void give(Values &, int) const {}
};

template <class T>
constexpr bool PAIRED = same_type<T, half_t> || same_type<T, bfloat16_t>;

// A result as it is stored.
template <class T, class From>
DEVICE T rounded(From value) {
    if constexpr (is_narrow(dtype_of(RESULT)))
        return from_float<T>(value);
    else
        return (T)value;
}

template <class T, class From>
DEVICE void store_vector(const Params &params, const Spot &spot, const From (&y)[VECTOR], int number) {
    const Place place = place_of<RESULT_OPERAND>(params);
    const gptr<T> to = first_element<RESULT_OPERAND, T>(place, spot) + (RESULTS > 1 ? number * params.c_m : 0);
    constexpr bool WHOLE = form_of<RESULT_OPERAND> == ADJACENT;
    constexpr int STORES = WHOLE ? 1 : VECTOR, EACH = VECTOR / STORES;
    UNROLL for (int s = 0; s < STORES; ++s) {
        Vec<EACH *(int)sizeof(T)> data = Vec<EACH *(int)sizeof(T)>::zero();
        if constexpr (PAIRED<T> && EACH % 2 == 0)
            UNROLL for (int e = 0; e < EACH; e += 2) data.word[e / 2] =
                pack_pair(y[s * EACH + e], y[s * EACH + e + 1], T{});
        else
            UNROLL for (int e = 0; e < EACH; ++e) data.set(e, rounded<T>(y[s * EACH + e]));
        store_global(to + s * place.column, data, spot.inside);
    }
}

// Puts the results of one element from NUMBER on among those of its vector.
template <int NUMBER, class T>
DEVICE void take_results(Values &values, int element, T (&y)[RESULTS][VECTOR]) {
    if constexpr (NUMBER < RESULTS) {
        y[NUMBER][element] = values.of<result(NUMBER)>();
        take_results<NUMBER + 1>(values, element, y);
    }
}

KERNEL(pointwise, Params, THREADS, MIN_BLOCKS) {
    Spot spots[ITEMS];
    Loaded<INPUTS> loaded[ITEMS];
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        const u32 vector = (u32)(block_index() * ITEMS + item) * THREADS + (u32)thread_index();
        spots[item] = find_spot(params, vector);
        loaded[item].load(params, spots[item]);
    }
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        if (spots[item].inside)
            cover("vectors");
        else
            cover("past_end");
        held_t<RESULT> y[RESULTS][VECTOR];
        UNROLL for (int element = 0; element < VECTOR; ++element) {
            Values values;
            loaded[item].give(values, element);
            execute_all<0>(values);
            take_results<0>(values, element, y);
        }
        UNROLL for (int number = 0; number < RESULTS; ++number)
            store_vector<stored_t<RESULT>>(params, spots[item], y[number], number);
    }
}
