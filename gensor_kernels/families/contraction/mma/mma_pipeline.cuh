// The main loop of the tensor-core families: the stages of shared memory, and the fragments of a warp.
#pragma once
#include "mma_complex.cuh"
#include "mma_eight_bit.cuh"
#include "prepared.cuh"
#include "unrolled.cuh"

using TileA = OperandTile<BLOCK_M, A_LAYOUT, A_UNIT, A_WINDOW, A_VECTOR, A_STORED, INLINED_A>;
using TileB = OperandTile<BLOCK_N, B_LAYOUT, B_UNIT, B_WINDOW, B_VECTOR, B_STORED, INLINED_B>;
using LoadA = LoaderOf<TileA, FRAGMENTS_M, 4>;
using LoadB = LoaderOf<TileB, FRAGMENTS_N, 2>;
constexpr int STAGE_BYTES = TileA::BYTES + MATRICES * TileB::BYTES;

// If two sets of fragments fit the registers, the next step's are read while this step's are multiplied.
constexpr int FRAGMENT_REGISTERS = LoadA::WORDS * FRAGMENTS_M + MATRICES * LoadB::WORDS * FRAGMENTS_N;
constexpr int REGISTERS = minimum(255, 65536 / THREADS / (MIN_BLOCKS > 0 ? MIN_BLOCKS : 1));
constexpr int SUM_BYTES =
    sizeof(SUM_TYPE) * (INSTRUCTION == 9 ? 2 : 1) + (same_type<SUM_TYPE, Sum> ? 0 : sizeof(ACC_TYPE));
constexpr int SUM_REGISTERS = MATRICES * FRAGMENTS_M * FRAGMENTS_N * SUM_BYTES;
constexpr bool DOUBLE_FRAGMENTS = SUM_REGISTERS + 2 * FRAGMENT_REGISTERS + 48 <= REGISTERS;

constexpr int AHEAD = ASYNC ? STAGES - 1 : 1;

struct Fragments {
    u32 a[FRAGMENTS_M][LoadA::WORDS], b[MATRICES][FRAGMENTS_N][LoadB::WORDS];
};

// Copies both operands, stage by stage. AHEAD steps are being copied while one is computed.
struct Pipeline {
    TileCopy<TileA> a;
    TileCopy<TileB> b;
#if GATE
    TileCopy<TileB> other; // of the matrix that the gate multiplies
#endif
    int k_left, write; // values of k not yet requested, and byte offset of the stage to fill next

    MEMBER Pipeline(const Params &params, const Tile &tile) : Pipeline(params, tile, first_operand(params, tile)) {}
    MEMBER Pipeline(const Params &params, const Tile &tile, const FirstOperand &from)
        : a(params, tile.batch, from.entry, tile.row, tile.end, from.m, tile.k_begin, tile.k_end, from.k),
          b(params, tile.batch, entry_of_b(params, tile), tile.column, params.n, stride_of_b(params), tile.k_begin,
            tile.k_end, params.b_k),
#if GATE
          other(params, tile.batch, entry_of_b(params, tile) + params.gated.b_other, tile.column, params.n, params.b_n,
                tile.k_begin, tile.k_end, params.b_k),
#endif
          k_left(tile.k_end - tile.k_begin), write(0) {
    }

    // Requests the next step. Steps past the end of k are zeros.
    MEMBER void request(const Params &params) {
        a.request(params, k_left, shared_base() + write);
        b.request(params, k_left, shared_base() + (write + TileA::BYTES));
#if GATE
        other.request(params, k_left, shared_base() + (write + TileA::BYTES + TileB::BYTES));
#endif
        if constexpr (ASYNC) {
            copy_async_commit();
            write = next_stage(write);
        }
        k_left -= BLOCK_K;
    }
    // Makes the oldest requested step visible to the block, and releases the stage before it.
    MEMBER void receive() {
        if constexpr (ASYNC) {
            copy_async_wait<STAGES - 2>();
        } else {
            a.store(shared_base() + write);
            b.store(shared_base() + (write + TileA::BYTES));
#if GATE
            other.store(shared_base() + (write + TileA::BYTES + TileB::BYTES));
#endif
            write = next_stage(write);
        }
        barrier();
    }
    // Waits for all copies and for all reads of the block: shared memory is free afterwards.
    static MEMBER void finish() {
        if constexpr (ASYNC && STAGES > 2)
            copy_async_wait<0>();
        barrier();
    }
    static MEMBER int next_stage(int offset) { return offset == (STAGES - 1) * STAGE_BYTES ? 0 : offset + STAGE_BYTES; }
};

// The math of a warp.
struct WarpMath {
    LoadA::Type load_a;
    LoadB::Type load_b;
    Accumulators accumulators[MATRICES];
    Fragments fragments[2];
    Scaling scaling;
    LongSums long_sums;
    int read; // byte offset of the stage being computed

    MEMBER WarpMath(const Params &params, const Tile &tile, int row, int column)
        : load_a(row), load_b(column), accumulators{}, scaling(params, tile, tile.column + column), read(0) {}

    MEMBER void begin() { load(0, 0); }
    MEMBER void finish(const Params &, const Tile &) {
        scaling.finish(accumulators[0]);
        long_sums.finish(accumulators);
        part_sums(accumulators);
    }

    MEMBER void load(int buffer, int k) {
        load_a.load(fragments[buffer].a, shared_base() + read, k);
        UNROLL for (int x = 0; x < MATRICES; ++x)
            load_b.load(fragments[buffer].b[x], shared_base() + (read + TileA::BYTES + x * TileB::BYTES), k);
    }
    // Multiplies the fragments of step `k` of the stage.
    MEMBER void multiply_all(int buffer, int k) {
        multiply_read(fragments[buffer], k);
        long_sums.promote(accumulators, k);
    }

    template <class Read>
    MEMBER void multiply_read(const Read &read, int k) {
        UNROLL for (int part = 0; part < PART_COUNT; ++part) {
            if constexpr (NARROW < 8 * MULTIPLIED) {
                UNROLL for (int x = 0; x < MATRICES; ++x) multiply_part(accumulators[x], read.a, read.b[x], part);
            } else {
                UNROLL for (int x = 0; x < MATRICES; ++x) {
                    UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j)
                        multiply(accumulators[x][i][j], read.a[i], read.b[x][j]);
                }
                scaling.add(read.a);
            }
            scaling.advance(accumulators[0], k * PART_COUNT + part + 1);
        }
    }
    // Widens and multiplies one of the fragments along k of a step.
    template <class ReadA, class ReadB>
    MEMBER void multiply_part(Accumulators &sums, const ReadA &read_a, const ReadB &read_b, int part) {
        u32 a[FRAGMENTS_M][4], b[FRAGMENTS_N][2];
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) take_part<TileB>(b[j], read_b[j], part);
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
            take_part<TileA>(a[i], read_a[i], part);
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) multiply(sums[i][j], a[i], b[j]);
        }
        scaling.add(a);
    }

    // Multiplies the stage whose first fragments are loaded, and loads the first fragments of the next stage. `request`
    // requests a step. With LOAD_FIRST, it follows a load of fragments, because a load that follows copies waits for
    // all of them. Other cases need the registers: many warps with small tiles of two steps, which hide that wait; the
    // rounding to TF32; elements that are widened; and the walk along packed images.
    template <class Request>
    MEMBER void compute(Pipeline &pipeline, const Request &request) {
        constexpr bool WIDENS = NARROW < 8 * MULTIPLIED, SHORT_OF_REGISTERS = SUM_REGISTERS < 64 && INSTRUCTION != 2;
        constexpr bool LOAD_FIRST = DOUBLE_FRAGMENTS && !WIDENS && !PACKED && K_STEPS > (SHORT_OF_REGISTERS ? 2 : 1);
        if constexpr (!LOAD_FIRST)
            request();
        unrolled<K_STEPS>([&](int k) {
            const bool last = k == K_STEPS - 1;
            // The next fragments are loaded into the other buffer before these are multiplied, unless the next stage is
            // not stored yet (ASYNC 0), or the number of steps is odd, so that a stage would not start at buffer 0.
            const bool ahead = DOUBLE_FRAGMENTS && (!last || (ASYNC && K_STEPS % 2 == 0));
            const int now = DOUBLE_FRAGMENTS ? k % 2 : 0, next = last || !DOUBLE_FRAGMENTS ? 0 : (k + 1) % 2;
            if (!ahead)
                multiply_all(now, k);
            if (last) {
                pipeline.receive();
                read = Pipeline::next_stage(read);
            }
            load(next, last ? 0 : k + 1);
            if (LOAD_FIRST && k == 0)
                request();
            if (ahead)
                multiply_all(now, k);
        });
    }
};
