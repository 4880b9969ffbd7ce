// Products of float operands on the bfloat16 tensor cores (INSTRUCTION 5), as accurate as multiply-adds of floats.
//
// x * 2^16 is exactly the sum of three bfloat16 numbers: the one nearest to it, the one nearest to the rest, and the
// final rest. The factor 2^16 brings the last bit of every float, subnormal ones included, into the range of bfloat16.
// The kernel computes six of the nine products of two split numbers; the others are at most 2^-24 of the result. For
// 16 values of k, the tensor core sums the large product and the five small ones, starting at zero. Ordinary additions,
// which round to nearest where a tensor core truncates, then add these sums to accumulators, which hold sums * 2^32.
//
// If an operand is infinite or NaN, or if a sum overflows (which the factor 2^32 makes more likely), the accumulators
// end up infinite or NaN. A block that finds such a sum walks through k a second time and uses multiply-adds.
#pragma once
#include "mma_pipeline.cuh"
#include "vote.cuh"

#if INSTRUCTION == 5
constexpr int PARTS = 3, SMALL_PRODUCTS = 5, K_MULTIPLIED = 16;
constexpr float LIFT = 65536.0f, LOWER = 1.0f / LIFT / LIFT;

// Splits a fragment of 16 values of k, read as two of 8, into its parts. Register r of a part holds elements that are
// 16 bytes apart in memory: k is permuted in the same way for both operands.
template <int REGISTERS>
DEVICE void split_floats(u32 (&parts)[PARTS][REGISTERS], const u32 (&words)[2][REGISTERS]) {
    constexpr int LINES = REGISTERS / 2; // rows of A or columns of B that a lane has
    UNROLL for (int r = 0; r < REGISTERS; ++r) {
        const u32(&read)[REGISTERS] = words[r / LINES];
        float x = bit_cast<float>(read[r % LINES]) * LIFT, y = bit_cast<float>(read[r % LINES + LINES]) * LIFT;
        UNROLL for (int p = 0; p < PARTS; ++p) {
            const u32 pair = pack_pair(x, y, bfloat16_t{});
            x = x - bit_cast<float>(pair << 16), y = y - bit_cast<float>(pair & 0xffff0000u);
            parts[p][r] = pair;
        }
    }
}

// The math of a warp, with the interface of WarpMath.
struct FloatMath {
    // Fragments of a row whose products alternate, because a product waits for the previous one of the same fragment.
    static constexpr int TOGETHER = minimum(FRAGMENTS_M * FRAGMENTS_N > 16 ? 2 : 4, FRAGMENTS_N);
    FragmentLoader<TileA, FRAGMENTS_M, 4> load_a;
    FragmentLoader<TileB, FRAGMENTS_N, 2> load_b;
    Accumulators accumulators[MATRICES];
    int row, column, read; // the warp's place in the tile; byte offset of the stage being computed

    MEMBER FloatMath(const Params &, const Tile &, int row, int column)
        : load_a(row), load_b(column), accumulators{}, row(row), column(column), read(0) {}

    MEMBER void begin() {}
    MEMBER sptr<u8> tile_a() const { return shared_base() + read; }
    MEMBER sptr<u8> tile_b(int matrix) const { return shared_base() + (read + TileA::BYTES + matrix * TileB::BYTES); }

    // Requests a step, multiplies a stage, and waits for the next one.
    template <class Request>
    MEMBER void compute(Pipeline &pipeline, const Request &request) {
        request();
        unrolled<BLOCK_K / K_MULTIPLIED>(
            [&](int k) { UNROLL for (int x = 0; x < MATRICES; ++x) multiply_matrix(accumulators[x], tile_b(x), k); });
        pipeline.receive();
        read = Pipeline::next_stage(read);
    }
    MEMBER void multiply_matrix(Accumulators &sums, sptr<u8> tile, int k) const {
        u32 words[2][FRAGMENTS_N][2], right[FRAGMENTS_N][PARTS][2];
        UNROLL for (int half = 0; half < 2; ++half) load_b.load(words[half], tile, 2 * k + half);
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
            const u32 own[2][2] = {{words[0][j][0], words[0][j][1]}, {words[1][j][0], words[1][j][1]}};
            split_floats(right[j], own);
        }
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
            u32 own[2][4], left[PARTS][4];
            UNROLL for (int half = 0; half < 2; ++half) load_a.load_one(own[half], tile_a(), 2 * k + half, i);
            split_floats(left, own);
            UNROLL for (int first = 0; first < FRAGMENTS_N; first += TOGETHER)
                multiply_tiles(sums[i], left, right, first, minimum(TOGETHER, FRAGMENTS_N - first));
        }
    }
    // Adds the products of a row of fragments and of `count` columns of fragments, starting at column `first`.
    static MEMBER void multiply_tiles(float (&sums)[FRAGMENTS_N][4], const u32 (&left)[PARTS][4],
                                      const u32 (&right)[FRAGMENTS_N][PARTS][2], int first, int count) {
        constexpr int OF_A[SMALL_PRODUCTS] = {2, 0, 1, 1, 0}, OF_B[SMALL_PRODUCTS] = {0, 2, 1, 0, 1};
        float small[TOGETHER][4] = {}, large[TOGETHER][4] = {};
        UNROLL for (int t = 0; t < count; ++t) multiply(large[t], left[0], right[first + t][0]);
        UNROLL for (int p = 0; p < SMALL_PRODUCTS; ++p) UNROLL for (int t = 0; t < count; ++t)
            multiply(small[t], left[OF_A[p]], right[first + t][OF_B[p]]);
        UNROLL for (int t = 0; t < count; ++t) UNROLL for (int r = 0; r < 4; ++r) sums[first + t][r] =
            sums[first + t][r] + (large[t][r] + small[t][r]);
    }

    // Removes the factor 2^32 from the sums, or computes them again if any of them is infinite or NaN.
    MEMBER void finish(const Params &params, const Tile &tile) {
        if (any_lost()) {
            cover("again");
            sum_again(params, tile);
        } else {
            for_each_sum([](float &sum) { sum = sum * LOWER; });
        }
    }
    template <class Visit>
    MEMBER void for_each_sum(const Visit &visit) {
        UNROLL for (int x = 0; x < MATRICES; ++x) UNROLL for (int i = 0; i < FRAGMENTS_M; ++i)
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int r = 0; r < 4; ++r)
                visit(accumulators[x][i][j][r]);
    }
    // Returns in every thread whether any sum of the block is infinite or NaN.
    MEMBER bool any_lost() {
        float traces[4] = {}; // NaN if a sum times zero is NaN; four traces have shorter chains of additions
        UNROLL for (int x = 0; x < MATRICES; ++x) UNROLL for (int i = 0; i < FRAGMENTS_M; ++i)
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int r = 0; r < 4; ++r) traces[r] =
                fma_(accumulators[x][i][j][r], 0.0f, traces[r]);
        return barrier_any((traces[0] + traces[1]) + (traces[2] + traces[3]) != 0.0f);
    }
    // Computes the sums by multiply-adds in the order of k, without overlap of copies and math.
    MEMBER void sum_again(const Params &params, const Tile &tile) {
        const int steps = divide_up(tile.k_end - tile.k_begin, BLOCK_K);
        Pipeline::finish(); // the first walk's last copies and this walk's first ones share stages
        for_each_sum([](float &sum) { sum = 0.0f; });
        Tile again = tile; // hides that it is the same tile: the main loop would keep its addresses in registers
        again.row = (i32)unknown((u32)tile.row), again.column = (i32)unknown((u32)tile.column);
        Pipeline pipeline(params, again);
        read = 0;
        ROLLED for (int s = 0; s < AHEAD; ++s) pipeline.request(params);
        pipeline.receive();
        ROLLED for (int step = 0; within(step, steps); ++step) {
            pipeline.request(params);
            UNROLL for (int x = 0; x < MATRICES; ++x) add_plainly(accumulators[x], tile_b(x));
            pipeline.receive();
            read = Pipeline::next_stage(read);
        }
    }
    MEMBER void add_plainly(Accumulators &sums, sptr<u8> tile) const {
        const int g = (thread_index() & 31) >> 2, t = thread_index() & 3;
        ROLLED for (int k = 0; k < BLOCK_K; ++k) {
            float a[FRAGMENTS_M][2], b[FRAGMENTS_N][2];
            UNROLL for (int half = 0; half < 2; ++half) {
                UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) a[i][half] =
                    element<TileA>(tile_a(), row + i * 16 + half * 8 + g, k);
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) b[j][half] =
                    element<TileB>(tile, column + j * 8 + t * 2 + half, k);
            }
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j)
                UNROLL for (int r = 0; r < 4; ++r) sums[i][j][r] = fma_(a[i][r / 2], b[j][r % 2], sums[i][j][r]);
        }
    }
    template <class Shape>
    static MEMBER float element(sptr<u8> tile, int entry, int k) {
        const int at = Shape::K_CONTIGUOUS ? Shape::Rows::offset(entry, k * 4) : Shape::Rows::offset(k, entry * 4);
        return load_shared<4>(tile + at).template get<float>(0);
    }
};
using Math = FloatMath;
#elif FORM == 3
using Math = ThreeMath<WarpMath>;
#else
using Math = WarpMath;
#endif
