// A tile of an operand on its way through shared memory. A copy reads it where lines are adjacent, and writes it where
// the elements of a line are: without shared memory each store would fill half a sector. These copies took four times
// as long on an H100. Include this header after CHUNK, the elements of a chunk, and TILE_CHUNKS, the chunks of a line.
#pragma once
#include "intrinsics.cuh"

static_assert(TILE_CHUNKS % 8 == 0, "Swizzled chunks stay in their line.");

// A line contains the first BYTES of all chunks, then the rest of all chunks. Chunks are swizzled by the line's number
// within 128 bytes: eight lanes with 16 bytes each reach all banks, whether they access neighbouring lines or
// neighbouring chunks.
template <class T>
struct TurnedTile {
    static constexpr int OF_CHUNK = CHUNK * (int)sizeof(T), BYTES = OF_CHUNK < 16 ? OF_CHUNK : 16;
    static constexpr int ACCESSES = OF_CHUNK / BYTES, EACH = BYTES / (int)sizeof(T);

    static MEMBER sptr<u8> place(u32 line, u32 chunk, int access) {
        const u32 at = ((u32)access * TILE_CHUNKS + chunk) ^ line % (128 / BYTES);
        return shared_base() + (int)((line * (TILE_CHUNKS * ACCESSES) + at) * BYTES);
    }
    static MEMBER void store(u32 line, u32 chunk, const T (&elements)[CHUNK]) {
        UNROLL for (int access = 0; access < ACCESSES; ++access) {
            Vec<BYTES> packed = Vec<BYTES>::zero();
            UNROLL for (int i = 0; i < EACH; ++i) packed.set(i, elements[access * EACH + i]);
            store_shared(place(line, chunk, access), packed);
        }
    }
    static MEMBER void load(u32 line, u32 chunk, T (&elements)[CHUNK]) {
        UNROLL for (int access = 0; access < ACCESSES; ++access) {
            const Vec<BYTES> packed = load_shared<BYTES>(place(line, chunk, access));
            UNROLL for (int i = 0; i < EACH; ++i) elements[access * EACH + i] = packed.template get<T>(i);
        }
    }
};
