// Complex numbers of doubles on the tensor cores: a complex product of fragments is several real ones.
//
// Shared memory stores numbers in the format of global memory, so that cp.async can copy them, and a lane reads both
// parts at once. FORM 4 computes four real products. FORM 3 uses Gauss's formula (product_forms.cuh), and each warp
// adds the real and imaginary parts of the fragments that it reads.
#pragma once
#include "product_forms.cuh"
#if FORM != 1
#define SUM_TYPE Sum // FORM 3: three sums per output
#endif
#include "mma_doubles.cuh"

// The largest warp tile, in outputs, whose sums fit the registers.
constexpr int MOST_DOUBLES = FORM == 3 ? 768 : FORM == 4 ? 1152 : 2048;

#if FORM != 1
static_assert(INSTRUCTION >= 6 && same_type<IN_TYPE, c128>, "Tensor cores multiply complex numbers of doubles.");
#endif

// The parts of a fragment of COUNT elements.
template <int COUNT>
struct ComplexFragment {
    double real[COUNT], imaginary[COUNT];

    MEMBER ComplexFragment(const u32 (&words)[4 * COUNT], bool conjugate) {
        double parts[2 * COUNT];
        unpack_doubles(parts, words);
        UNROLL for (int i = 0; i < COUNT; ++i) {
            real[i] = parts[2 * i];
            imaginary[i] = conjugate ? -parts[2 * i + 1] : parts[2 * i + 1];
        }
    }
    // Adds both parts of every element.
    MEMBER void add_parts(double (&mixed)[COUNT]) const {
        UNROLL for (int i = 0; i < COUNT; ++i) mixed[i] = real[i] + imaginary[i];
    }
};

template <int WORDS_A, int WORDS_B>
DEVICE void multiply(c128 (&d)[4], const u32 (&a)[WORDS_A], const u32 (&b)[WORDS_B]) {
    const ComplexFragment<WORDS_A / 4> left(a, A_CONJUGATE);
    const ComplexFragment<WORDS_B / 4> right(b, B_CONJUGATE);
    double negative[WORDS_A / 4], real[4], imaginary[4];
    UNROLL for (int i = 0; i < WORDS_A / 4; ++i) negative[i] = -left.imaginary[i];
    UNROLL for (int i = 0; i < 4; ++i) real[i] = d[i].re, imaginary[i] = d[i].im;
    // The products alternate between both sums: a product waits for the previous one of its sum.
    multiply_doubles(real, left.real, right.real);
    multiply_doubles(imaginary, left.real, right.imaginary);
    multiply_doubles(real, negative, right.imaginary);
    multiply_doubles(imaginary, left.imaginary, right.real);
    UNROLL for (int i = 0; i < 4; ++i) d[i] = c128{real[i], imaginary[i]};
}

// Adds zero to complex sums, which changes none but -0. Matrix instructions take the real parts of several sums in
// adjacent registers, and stores both parts of one: without an operation in between, ptxas copies all sums in each
// step.
template <class Accumulators>
DEVICE void part_sums(Accumulators &accumulators) {
    if constexpr (FORM == 4) {
        UNROLL for (auto &matrix : accumulators) UNROLL for (auto &row : matrix) UNROLL for (auto &sums : row)
            UNROLL for (auto &sum : sums) sum = c128{sum.re + 0.0, sum.im + 0.0};
    }
}

template <int WORDS_A, int WORDS_B>
DEVICE void multiply(ThreeSums<double> (&d)[4], const u32 (&a)[WORDS_A], const u32 (&b)[WORDS_B]) {
    const ComplexFragment<WORDS_A / 4> left(a, A_CONJUGATE);
    const ComplexFragment<WORDS_B / 4> right(b, B_CONJUGATE);
    double both[WORDS_A / 4], other[WORDS_B / 4], real[4], imaginary[4], mixed[4];
    left.add_parts(both);
    right.add_parts(other);
    UNROLL for (int i = 0; i < 4; ++i) real[i] = d[i].real, imaginary[i] = d[i].imaginary, mixed[i] = d[i].mixed;
    multiply_doubles(real, left.real, right.real);
    multiply_doubles(imaginary, left.imaginary, right.imaginary);
    multiply_doubles(mixed, both, other);
    UNROLL for (int i = 0; i < 4; ++i) d[i] = ThreeSums<double>{real[i], imaginary[i], mixed[i]};
}

// The math of a warp with FORM 3: three sums per output, which `finish` turns into complex numbers.
template <class Products>
struct ThreeMath {
    using Numbers = ACC_TYPE[WARP_M / 16][WARP_N / 8][4];
    Products products;
    Numbers accumulators[MATRICES];

    MEMBER ThreeMath(const Params &params, const Tile &tile, int row, int column)
        : products(params, tile, row, column) {}

    MEMBER void begin() { products.begin(); }
    template <class Pipeline, class Request>
    MEMBER void compute(Pipeline &pipeline, const Request &request) {
        products.compute(pipeline, request);
    }
    MEMBER void finish(const Params &params, const Tile &tile) {
        products.finish(params, tile);
        UNROLL for (int x = 0; x < MATRICES; ++x) UNROLL for (int i = 0; i < WARP_M / 16; ++i)
            UNROLL for (int j = 0; j < WARP_N / 8; ++j)
                resolve_sums(products.accumulators[x][i][j], accumulators[x][i][j]);
    }
};
