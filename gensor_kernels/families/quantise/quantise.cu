// Elements and scales of blocks in a block-scaled format: MX formats of the OCP Microscaling Formats Specification 1.0,
// NVFP4 (operators/pointwise/block_formats.py).
//
// A thread rounds ITEMS blocks of GROUP neighbouring numbers each, those of a thread block one thread block apart, and
// loads all of them before it computes the first. Inputs are a, the scale of the tensor if there is one, and the
// scales, which are written.

#pragma parameter IN_TYPE float // numbers: float, half_t, bfloat16_t
#pragma parameter GROUP 32      // numbers of a block
#pragma parameter BITS 8        // of an element
#pragma parameter DIGITS 4      // precision of elements in bits
#pragma parameter EMAX 8        // exponent of the power of two below the largest element
#pragma parameter LARGEST 448   // element
#pragma parameter TENSOR 0      // 1: scales are float8_e4m3fn times that of the tensor; 0: powers of two
#pragma parameter A_VECTOR 16   // bytes of one access of a
#pragma parameter C_VECTOR 16   // bytes of one access of c
#pragma parameter ITEMS 1       // blocks of a thread
#pragma parameter THREADS 256   // of a block
#pragma parameter MIN_BLOCKS 0  // blocks per SM promised to the compiler; 0 = none

#include "intrinsics.cuh"
#include "params.cuh"

constexpr int WIDTH = A_VECTOR / (int)sizeof(IN_TYPE), LOADS = GROUP / WIDTH;
constexpr int BYTES = GROUP * BITS / 8, STORES = BYTES / C_VECTOR, ELEMENTS = C_VECTOR * 8 / BITS;
constexpr u32 INFINITE = 0x7f800000u;

// The bits of a number rounded to nearest, ties to even, in a type of WIDE bits with P bits of precision. It saturates
// at MOST; NaN has no sign, and is 0 in 4 bits.
template <int WIDE, int P, int MOST>
DEVICE u32 narrow(float value) {
    constexpr int SHIFT = 24 - P, E = 2 - (1 << (WIDE - P - 1)); // the least exponent
    const u32 bits = bit_cast<u32>(value), sign = bits >> 31 << (WIDE - 1);
    u32 size = bits & 0x7fffffffu;
    if (size > INFINITE)
        return WIDE == 4 ? 0u : 0x7fu;
    size = minimum(size, bit_cast<u32>((float)MOST));
    if (size < (u32)(127 + E) << 23) {
        // Neighbours of this power of two are as far apart as subnormal numbers.
        constexpr u32 POWER = (u32)(127 + E + SHIFT) << 23;
        return sign | (bit_cast<u32>(bit_cast<float>(size) + bit_cast<float>(POWER)) - POWER);
    }
    return sign | (((size + (1u << (SHIFT - 1)) - 1 + (size >> SHIFT & 1)) >> SHIFT) - ((u32)(126 + E) << (P - 1)));
}

// The number that a scale of NVFP4 is.
DEVICE float scale_value(u32 scale) {
    if ((scale & 0x7f) == 0x7f)
        return bit_cast<float>(0x7fc00000u);
    // Multiplying by 2^120 moves the exponent bias from 7 to 127 and normalises subnormals exactly.
    return bit_cast<float>((scale & 0x80) << 24 | (scale & 0x7f) << 20) * bit_cast<float>(0x7b800000u);
}

// The scale of a block, and what its numbers are divided by, or multiplied by where the scale is a power of two.
struct Scale {
    u32 bits;
    float factor;

    MEMBER Scale(u32 largest, [[maybe_unused]] float tensor) {
        if constexpr (TENSOR) {
            bits = narrow<8, 4, 448>(bit_cast<float>(largest) / (float)LARGEST / tensor);
            factor = scale_value(bits) * tensor;
            if (factor == 0.0f) // a block whose scale is rounded to zero has zeros
                factor = bit_cast<float>(INFINITE);
        } else {
            const u32 exponent = largest >> 23;
            bits = exponent == 255 ? 255u : exponent > EMAX ? exponent - EMAX : 0u;
            factor = bit_cast<float>(bits == 255 ? 0x7fc00000u : bits == 254 ? 0x00400000u : (254 - bits) << 23);
        }
    }
    MEMBER float scaled(float value) const { return TENSOR ? value / factor : value * factor; }
};

DEVICE float to_float(float value) {
    return value;
}

struct Block {
    i64 number;
    bool inside;
    Vec<A_VECTOR> data[LOADS];

    MEMBER void load(const Params &params) {
        const gptr<IN_TYPE> from = gptr<IN_TYPE>(params.a) + number * GROUP;
        UNROLL for (int i = 0; i < LOADS; ++i) data[i] = load_global<A_VECTOR>(from + i * WIDTH, inside);
    }
    MEMBER float at(int i) const { return to_float(data[i / WIDTH].template get<IN_TYPE>(i % WIDTH)); }
    // The bits of the largest magnitude: those of NaN are larger than those of infinity.
    MEMBER u32 largest() const {
        u32 found = 0;
        UNROLL for (int i = 0; i < GROUP; ++i) {
            const u32 size = bit_cast<u32>(at(i)) & 0x7fffffffu;
            found = found > size ? found : size;
        }
        return found;
    }
    MEMBER void store(const Params &params, const Scale &scale) const {
        const gptr<u8> to = gptr<u8>(params.c) + number * BYTES;
        UNROLL for (int s = 0; s < STORES; ++s) {
            Vec<C_VECTOR> elements = Vec<C_VECTOR>::zero();
            UNROLL for (int e = 0; e < ELEMENTS; ++e) {
                const u32 bits = narrow<BITS, DIGITS, LARGEST>(scale.scaled(at(s * ELEMENTS + e)));
                elements.word[e * BITS / 32] |= bits << (e * BITS % 32);
            }
            store_global(to + s * C_VECTOR, elements, inside);
        }
        Vec<1> last = Vec<1>::zero();
        last.set(0, (u8)scale.bits);
        store_global(gptr<u8>(TENSOR ? params.d : params.b) + number, last, inside);
    }
};

KERNEL(quantise, Params, THREADS, MIN_BLOCKS) {
    const float tensor = TENSOR ? load_global<4>(gptr<float>(params.b), true).template get<float>(0) : 1.0f;
    Block blocks[ITEMS];
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        blocks[item].number = ((i64)block_index() * ITEMS + item) * THREADS + thread_index();
        blocks[item].inside = within(blocks[item].number, (i64)params.n);
        blocks[item].load(params);
    }
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        if (blocks[item].inside)
            cover("vectors");
        else
            cover("past_end");
        blocks[item].store(params, Scale(blocks[item].largest(), tensor));
    }
}
