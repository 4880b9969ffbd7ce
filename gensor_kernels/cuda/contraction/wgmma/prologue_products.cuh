// A warpgroup's part of contraction_prologue_wgmma: products whose left operand passes through the prologue.
//
// Each warp reads its 16 of every 64 rows of A by ldmatrix, prepares them in registers, and products take them from
// there. A step is cut into two chunks of k: while the products of a chunk run, the next chunk is prepared, in the
// other of two buffers of registers; the vectors' elements of the chunk behind are on their way.
#pragma once
#include "prologue.cuh"
#include "wgmma_requests.cuh"

constexpr int CHUNK = BLOCK_K / 2, PARTS_OF_CHUNK = CHUNK / K_STEP;
using SwizzledRows = SharedRows<SWIZZLE_MATRIX, 128>; // permutes chunks as copies do

struct PreparedMath {
    // A run of the vectors: the two adjacent elements of k that a register of A holds, for both of its rows.
    PrologueRuns<2 * PARTS_OF_CHUNK, 2> runs;
    u32 held[2][TILES_M][PARTS_OF_CHUNK][4]; // prepared elements of two chunks
    u64 b;                                   // descriptor of the tile of B in the ring's first buffer
    int rows;                                // bytes from a buffer to what this lane points ldmatrix to
    i32 k, end;                              // this lane's k of the chunk that is prepared next; end of the tile's k

    MEMBER PreparedMath(const Params &params, const Tile &tile, int row)
        : runs(params, tile.batch), k(tile.k_begin + (thread_index() & 3) * 2), end(tile.k_end) {
        b = TileB::descriptor(tiles(0) + TileA::BYTES, 0);
        rows = TileA::K_CONTIGUOUS ? row * 128 : row / UNIT * TileA::BOX_BYTES;
        request();
    }
    // Bytes from there to the fragment of tile i and of k from number `at` of the step on.
    static MEMBER int fragment(int i, int at) {
        const int lane = thread_index() & 31, warp_row = (thread_index() >> 5 & 3) * 16;
        if constexpr (TileA::K_CONTIGUOUS) {
            const int line = warp_row + (lane & 15), byte = at % UNIT * ELEMENT + (lane >> 4) * 16;
            return at / UNIT * TileA::BOX_BYTES + i * TileA::NEXT_ROWS + SwizzledRows::offset(line, byte);
        } else { // rows of k; the lanes of a matrix point to eight of them
            const int line = at + (lane >> 4) * 8 + (lane & 7), byte = warp_row * ELEMENT + (lane >> 3 & 1) * 16;
            return i * TileA::NEXT_ROWS + SwizzledRows::offset(line, byte);
        }
    }
    // Asks for the vectors' elements of the next chunk.
    MEMBER void request() {
        UNROLL for (int run = 0; run < 2 * PARTS_OF_CHUNK; ++run) {
            const i32 channel = k + run * 8;
            runs.load(run, channel, within(channel, end));
        }
    }
    // Reads and prepares a chunk. What it makes of zeros behind the end of k is multiplied by zeros of B.
    MEMBER void prepare(int slot, int chunk) {
        const sptr<u8> from = tiles(slot) + rows;
        cover("prologue");
        UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p) UNROLL for (int i = 0; i < TILES_M; ++i) {
            u32(&words)[4] = held[chunk][i][p];
            load_matrix<4, !TileA::K_CONTIGUOUS>(words, from + fragment(i, chunk * CHUNK + p * K_STEP));
            UNROLL for (int r = 0; r < 4; ++r) {
                const int run = 2 * p + (r >> 1);
                float pair[2];
                UNROLL for (int e = 0; e < 2; ++e) pair[e] = to_float(bit_cast<IN_TYPE>((u16)(words[r] >> 16 * e)));
                runs.template apply<true>(run, pair);
                words[r] = pack_pair(pair[0], pair[1], IN_TYPE{});
            }
        }
        k += CHUNK;
        request();
    }
    MEMBER void hold(int buffer) {
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p)
            wgmma_hold(held[buffer][i][p]);
    }
    // Issues the products of a chunk, as a group of products.
    MEMBER void begin(Sums &sums, int slot, int chunk) {
        const u64 there = further(b, slot * SLOT_BYTES);
        ::hold(sums);
        hold(chunk);
        wgmma_fence();
        UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p) UNROLL for (int i = 0; i < TILES_M; ++i)
            wgmma_held<!TileB::K_CONTIGUOUS, 1>(sums[i], held[chunk][i][p],
                                                further(there, TileB::along(chunk * CHUNK + p * K_STEP)), IN_TYPE{});
        wgmma_commit();
    }
    // One lane of each warp gives a buffer back, behind the loads of all lanes.
    static MEMBER void give_back(int slot) {
        warp_barrier();
        release(slot);
    }

    // A step whose first chunk is prepared; MORE: the first chunk of the next step is prepared meanwhile.
    template <bool MORE>
    MEMBER void step(Sums &sums, Turn &turn, int before, bool later) {
        const int slot = turn.slot;
        turn.next();
        begin(sums, slot, 0);
        wgmma_wait<1>(); // the chunk before: its registers, and its buffer, are free
        hold(1);
        if (later)
            give_back(before);
        prepare(slot, 1);
        begin(sums, slot, 1);
        wgmma_wait<1>();
        hold(0);
        if constexpr (MORE) {
            mbarrier_wait(full(turn.slot), turn.parity);
            prepare(turn.slot, 0);
        }
    }
    // Sums a tile's steps. Without a step nothing is waited for, as in consume().
    MEMBER void multiply(Sums &sums, int steps, Turn &turn) {
        if (!within(0, steps))
            return;
        mbarrier_wait(full(turn.slot), turn.parity);
        prepare(turn.slot, 0);
        int before = 0;
        for (int done = 1; within(done, steps); ++done) {
            cover("steady");
            const int slot = turn.slot;
            step<true>(sums, turn, before, done > 1);
            before = slot;
        }
        cover("drain");
        const int last = turn.slot;
        step<false>(sums, turn, before, steps > 1);
        wgmma_wait<0>();
        ::hold(sums);
        if constexpr (PERSISTENT)
            give_back(last);
    }
};
