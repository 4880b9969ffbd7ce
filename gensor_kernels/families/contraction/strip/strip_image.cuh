// Copies the lines of a tile from the image to shared memory, and loads fragments from there.
#pragma once
#include "strip_tile.cuh"

// Copies all lines in pieces of BYTES; a thread's pieces are THREADS apart.
template <int BYTES>
DEVICE void copy_pieces(const Params &params, const Strip &strip, const StripTile &own, sptr<u8> stage) {
    constexpr int PIECE = BYTES / ELEMENT;
    const i32 line_pieces = strip.pitch / BYTES, step[2] = {THREADS / line_pieces, THREADS % line_pieces};
    const gptr<IN_TYPE> source = strip.source + (own.image * strip.image + own.element);
    i32 line = thread_index() / line_pieces, piece = thread_index() % line_pieces;
    UNROLL_BY_4 while (within(line, strip.lines)) {
        const i32 h = own.first + line / PLANES, first = own.element + piece * PIECE;
        // An index before the image is a large number when unsigned.
        const bool inside = within((u32)h, (u32)params.window.extent[0]) && within((u32)first, (u32)strip.elements);
        const gptr<IN_TYPE> from = source + (h * strip.row + line % PLANES * strip.plane + piece * PIECE);
        const sptr<u8> to = stage + (line * strip.pitch + piece * BYTES);
        if constexpr (BYTES >= 4)
            copy_async<BYTES>(to, from, inside);
        else
            store_shared(to, load_global<BYTES>(from, inside));
        line += step[0], piece += step[1];
        const bool carry = !within(piece, line_pieces);
        piece -= carry ? line_pieces : 0;
        line += carry ? 1 : 0;
    }
}

// Starts the copies of a tile's lines.
DEVICE void copy_lines(const Params &params, const Strip &strip, const StripTile &own, sptr<u8> stage) {
    if (strip.access == 16) {
        cover("copies_of_16");
        copy_pieces<16>(params, strip, own, stage);
    } else if (strip.access == 8) {
        cover("copies_of_8");
        copy_pieces<8>(params, strip, own, stage);
    } else if (strip.access == 4) {
        cover("copies_of_4");
        copy_pieces<4>(params, strip, own, stage);
    } else {
        cover("single_elements");
        copy_pieces<ELEMENT>(params, strip, own, stage);
    }
}

// Fragments of 16 outputs x 16 positions. A lane holds pairs of positions of two outputs, in rows (or columns) g and
// g + 8, where g = lane / 4.
struct ImageFragments {
    i32 base[WARP_P / 16][2]; // byte offsets of the outputs' first segments, at the lane's pair
    i32 pitch;
    u32 mask[2]; // selects the pair's positions that belong to the segment, in its first and in its last octet

    MEMBER ImageFragments(const Strip &strip, int first) : pitch(strip.pitch) {
        const int lane = thread_index() & 31;
        UNROLL for (int i = 0; i < WARP_P / 8; ++i) {
            const i32 output = first + (OUTPUTS_DOWN ? 8 * i + (lane >> 2) : column_of(i, lane >> 2));
            // Outputs past the tile are not stored: any address is valid for them.
            const i32 inside = within(output, strip.tall * strip.wide) ? output : 0;
            const i32 line = inside / strip.wide * strip.down, element = inside % strip.wide * strip.across;
            base[i / 2][i % 2] = line * pitch + (element + (lane & 3) * 2) * ELEMENT;
        }
        UNROLL for (int last = 0; last < 2; ++last) {
            const i32 position = last * (OCTETS - 1) * EIGHT + (lane & 3) * 2 - strip.lead;
            const u32 low = within((u32)position, (u32)strip.segment) ? 0xffffu : 0;
            const u32 high = within((u32)position + 1, (u32)strip.segment) ? 0xffff0000u : 0;
            mask[last] = low | high;
        }
    }
    MEMBER void load(u32 (&words)[WARP_P / 16][4], sptr<u8> lines, int step) const {
        UNROLL for (int half = 0; half < 2; ++half) {
            const int octet = 2 * step + half, line = octet / OCTETS, in_line = octet % OCTETS;
            UNROLL for (int i = 0; i < WARP_P / 16; ++i) {
                UNROLL for (int r = 0; r < 2; ++r) {
                    u32 &word = words[i][OUTPUTS_DOWN ? 2 * half + r : 2 * r + half];
                    word = 0;
                    if (octet >= LINES * OCTETS) // the octet after an odd number of octets is zero
                        continue;
                    word = load_shared<4>(lines + (base[i][r] + line * pitch + in_line * 16)).template get<u32>(0);
                    word &= in_line == 0 ? mask[0] : 0xffffffffu;
                    word &= in_line == OCTETS - 1 ? mask[1] : 0xffffffffu;
                }
            }
        }
    }
};
