// Tiles of A and B in shared memory that tensor copies fill, for main loops that multiply from there (wgmma, tcgen05).
//
// Shared memory: first the mbarriers, a full and an empty one for each buffer, then those of the main loop; from RING
// on STAGES buffers, each with a tile of A, then a tile of B. A tile consists of boxes whose rows have 128 bytes. Where
// the operand is K-contiguous, these are rows of M or N, and 64 elements of k make a box (of 16 bits); else they are
// rows of k, and 64 rows of A or columns of B make a box, the last of which may have more columns than the tile. With
// GATE the columns of B are COLUMNS of the gate, then the same number of the other matrix. With PARTS 3 a tile has a
// box for each part of its elements. With PAIR each of both blocks has half of the columns of B.
#pragma once
#pragma parameter PAIR 0
#include "contraction.cuh"
#include "float_parts.cuh"
#include "hopper_ring.cuh"

// Indices of tensor maps. With GATE the map after B's is that of the other matrix.
enum MapIndex { MAP_A, MAP_B, MAP_C = MAP_B + MATRICES };

// Params, and the maps that the host encodes for each launch (core/tensor_maps.py).
struct MappedParams : Params {
    TensorMap map[MAP_C + STORE_COPIES];
};
static_assert(sizeof(MappedParams) == 896 + 128 * (2 + (GATE != 0) + STORE_COPIES),
              "MappedParams is Params and a map per operand.");

DEVICE void prefetch_maps(const MappedParams &params) {
    UNROLL for (int i = 0; i < MAP_C + STORE_COPIES; ++i) prefetch_map(params.map[i]);
}

constexpr int ELEMENT = (int)sizeof(A_STORED), UNIT = 128 / ELEMENT; // bytes; elements in a row of a box
constexpr int K_STEP = 32 / ELEMENT;                                 // extent of one product along k
constexpr int ATOM = 1024;                                           // bytes of eight rows: the swizzle's period
// Products of 8-bit floats accumulate in 14 bits: after every step their sums are added to float sums. Sums of products
// of parts are added more often.
constexpr bool PROMOTED = is_eight_bit_float<A_STORED>, SHORT_SUMS = PROMOTED || PARTS > 1;

// Columns of C per block, and those that a warp's slab of shared memory holds at a time (tma_store.cuh): fewer where
// slabs do not reuse the ring's memory, or where two halves are no whole fragments. A box of a copy has whole batches
// of four fragments.
constexpr int COLUMNS = GATE ? BLOCK_N / 2 : BLOCK_N;
constexpr int SMALL_N = COLUMNS % 64 == 0   ? 64
                        : COLUMNS % 48 == 0 ? 48
                        : COLUMNS % 32 == 0 ? 32
                        : COLUMNS % 16 == 0 ? 16
                        : COLUMNS % 56 == 0 ? 56
                        : COLUMNS % 40 == 0 ? 40
                        : COLUMNS % 24 == 0 ? 24
                                            : 8;
constexpr int SLAB_N = PERSISTENT || (COLUMNS > 128 && COLUMNS % 16) ? SMALL_N : COLUMNS > 128 ? COLUMNS / 2 : COLUMNS;
constexpr int WARP_N = STORE_COPIES ? 32 : SLAB_N, FRAGMENTS_N = WARP_N / 8;

// Blocks of a cluster along m and n, and the mask of all of them.
constexpr int CLUSTER_M = CLUSTER == 1 ? 2 : 1, CLUSTER_N = CLUSTER == 2 ? 2 : 1, PEERS = CLUSTER_M * CLUSTER_N;
constexpr u32 ALL_PEERS = (1 << PEERS) - 1;

DEVICE int rank_in_cluster() {
    return (int)((u32)block_index() % PEERS);
}

// A tile that FETCHERS blocks need: each of them fetches a share of the rows of every box for all blocks.
template <int EXTENT, int LAYOUT, int FETCHERS>
struct BoxedTile {
    static constexpr bool K_CONTIGUOUS = LAYOUT == 0;
    static constexpr int ROWS = K_CONTIGUOUS ? EXTENT : BLOCK_K;
    static constexpr int BOXES = divide_up(K_CONTIGUOUS ? BLOCK_K : EXTENT, UNIT) * PARTS;
    static constexpr int BOX_BYTES = ROWS * 128, BYTES = BOXES * BOX_BYTES;

    // The descriptor of the rows of M or N from `first` on.
    static MEMBER u64 descriptor(sptr<u8> tile, int first) {
        if constexpr (K_CONTIGUOUS)
            return matrix_descriptor(tile + first * 128, 16, ATOM);
        else
            return matrix_descriptor(tile + first / UNIT * BOX_BYTES, BOX_BYTES, ATOM);
    }
    // Bytes from there to element k along k, and to the next 64 rows of M or N.
    static MEMBER constexpr int k_offset(int k) {
        return K_CONTIGUOUS ? k / UNIT * BOX_BYTES + k % UNIT * ELEMENT : k * 128;
    }
    static constexpr int NEXT_ROWS = K_CONTIGUOUS ? 64 * 128 : 64 / UNIT * BOX_BYTES;

    // The first row of a box that this block fetches.
    static MEMBER int first_fetched_row() { return FETCHERS > 1 ? rank_in_cluster() * (ROWS / FETCHERS) : 0; }

    // Requests this block's share of a tile, and moves `at` to the next step. `at` are the coordinates of the share, in
    // the order of the map's axes: along the two axes of the operand, then the batch entry. Boxes are `box_step` apart
    // along the first axis.
    static MEMBER void request(sptr<u8> tile, const TensorMap &map, i32 (&at)[5], sptr<u64> full, i32 box_step = UNIT) {
        tile = tile + first_fetched_row() * 128;
        UNROLL for (int box = 0; box < BOXES; ++box) {
#if PAIR
            copy_tensor_of_pair(tile + box * BOX_BYTES, map, at, full);
#else
            if constexpr (FETCHERS > 1)
                copy_tensor(tile + box * BOX_BYTES, map, at, full, ALL_PEERS);
            else
                copy_tensor(tile + box * BOX_BYTES, map, at, full);
#endif
            at[0] += box_step;
        }
        at[0] -= BOXES * box_step;
        at[K_CONTIGUOUS ? 0 : 1] += BLOCK_K;
    }
};

using TileA = BoxedTile<BLOCK_M, A_LAYOUT, CLUSTER_N>;
using TileB = BoxedTile<PAIR ? BLOCK_N / 2 : BLOCK_N, B_LAYOUT, PAIR ? 1 : CLUSTER_M>;
constexpr int RING = ATOM, SLOT_BYTES = TileA::BYTES + TileB::BYTES;
DEVICE sptr<u8> tiles(int slot) {
    return shared_base() + (RING + slot * SLOT_BYTES);
}

// Sums of a thread: its warp and three others have TILES_M tiles of 64 rows by BLOCK_N columns.
typedef ACC_TYPE TileSums[BLOCK_N / 2];
typedef TileSums Sums[TILES_M];
