// Copies the patch of an image from global memory through registers to shared memory, and loads fragments from there.
//
// The layout in shared memory is [plane][position][16 bytes of channels]. A piece is one position of one plane.
// Neighbouring threads have neighbouring positions, whose elements of one channel are adjacent in the image.
#pragma once
#include "patch_tile.cuh"

// Copies a thread's pieces. The addresses of COPIES pieces, which are loaded while a step is computed, are found once.
// The remaining pieces of a larger patch are copied after the step is computed.
struct ImageCopy {
    gptr<IN_TYPE> source;                   // the image, at the step's first channel
    i64 channel;                            // elements from channel to channel
    i64 row, column;                        // elements of the image from row to row and from column to column
    i32 left;                               // channels left from the step's first one on
    i32 origin[2], gap[2], extent[2], wide; // of the patch and of the image
    i32 pixels, pieces;
    i64 offset[COPIES];
    i32 first[COPIES]; // first channel of the piece in the step
    u32 inside;        // bit per piece: the piece exists and is inside the image
    Vec<ELEMENT> staged[COPIES][EACH];

    MEMBER ImageCopy(const Params &params, const Patch &patch, const PatchTile &own)
        : channel(params.window.k_stride[0]), row(params.b_k), column(params.b_n), wide(patch.extent[1]),
          pixels(patch.pixels()), pieces(PLANES * patch.pixels()), inside(0) {
        const i32 from = own.tile.k_begin / patch.taps;
        source = gptr<IN_TYPE>(params.b) + (batch_offset(params.b_batch, own.tile.batch) + from * channel);
        left = own.tile.k_end / patch.taps - from;
        UNROLL for (int i = 0; i < 2; ++i) {
            origin[i] = own.origin[i], gap[i] = patch.gap[i];
            extent[i] = params.window.extent[i];
        }
        UNROLL for (int i = 0; i < COPIES; ++i) inside |= u32(find(thread_index() + i * THREADS, offset[i], first[i]))
                                                          << i;
    }

    // Finds the offset of a piece in `source` and its first channel; returns whether it is inside the image.
    MEMBER bool find(i32 piece, i64 &at, i32 &from) const {
        const u32 pixel = (u32)piece % (u32)pixels;
        const i32 h = origin[0] + (i32)(pixel / (u32)wide) * gap[0], w = origin[1] + (i32)(pixel % (u32)wide) * gap[1];
        from = (i32)((u32)piece / (u32)pixels) * EACH;
        at = h * row + w * column + from * channel;
        // An index before the image is a large number when unsigned.
        return within(piece, pieces) && within((u32)h, (u32)extent[0]) && within((u32)w, (u32)extent[1]);
    }
    MEMBER void load_piece(Vec<ELEMENT> (&elements)[EACH], i64 at, i32 from, bool is_inside) const {
        gptr<IN_TYPE> element = source + at;
        const i32 channels = is_inside ? left - from : 0;
        UNROLL for (int e = 0; e < EACH; ++e) {
            elements[e] = load_global<ELEMENT>(element, within(e, channels));
            element = element + channel;
        }
    }
    MEMBER void store_piece(const Vec<ELEMENT> (&elements)[EACH], sptr<u8> stage, i32 piece) const {
        Vec<16> channels = Vec<16>::zero();
        UNROLL for (int e = 0; e < EACH; ++e) channels.set(e, elements[e].template get<IN_TYPE>(0));
        store_shared(stage + piece * 16, channels);
    }

    // Requests the step's first COPIES pieces.
    MEMBER void load() {
        UNROLL for (int i = 0; i < COPIES; ++i) load_piece(staged[i], offset[i], first[i], inside >> i & 1);
    }
    // Stores all pieces of the step in shared memory and advances to the next step.
    MEMBER void store(sptr<u8> stage) {
        UNROLL for (int i = 0; i < COPIES; ++i) {
            const i32 piece = thread_index() + i * THREADS;
            if (within(piece, pieces))
                store_piece(staged[i], stage, piece);
        }
        ROLLED for (i32 piece = thread_index() + COPIES * THREADS; within(piece, pieces); piece += THREADS) {
            cover("more_pieces");
            Vec<ELEMENT> elements[EACH];
            i64 at;
            i32 from;
            const bool is_inside = find(piece, at, from);
            load_piece(elements, at, from, is_inside);
            store_piece(elements, stage, piece);
        }
        source = source + BLOCK_K * channel;
        left -= BLOCK_K;
    }
};

// Loads fragments with ldmatrix: a matrix has 8 outputs of 16 bytes of channels, and a load 16 outputs of two planes.
struct ImageFragments {
    i32 base[FRAGMENTS_N / 2]; // this lane's byte offsets in the stage, under the first tap
    i32 plane;                 // bytes

    MEMBER ImageFragments(const Patch &patch, int column) : plane(16 * patch.pixels()) {
        const int lane = thread_index() & 31;
        UNROLL for (int i = 0; i < FRAGMENTS_N / 2; ++i) {
            const i32 output = column + 16 * i + (lane & 7) + (lane >> 4) * 8;
            // Outputs past the tile are not stored: any address is valid for them.
            const i32 inside = within(output, patch.tall * patch.wide) ? output : 0;
            const i32 h = inside / patch.wide * patch.step[0], w = inside % patch.wide * patch.step[1];
            base[i] = (h * patch.extent[1] + w) * 16 + (lane >> 3 & 1) * plane;
        }
    }
    MEMBER void load(u32 (&fragments)[FRAGMENTS_N][2], sptr<u8> tap, int k) const {
        UNROLL for (int i = 0; i < FRAGMENTS_N / 2; ++i) {
            u32 pair[4];
            load_matrix<4, false>(pair, tap + (base[i] + 2 * k * plane));
            fragments[2 * i][0] = pair[0], fragments[2 * i][1] = pair[1];
            fragments[2 * i + 1][0] = pair[2], fragments[2 * i + 1][1] = pair[3];
        }
    }
};
