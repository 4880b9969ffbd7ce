// Tensor maps as the stand-in writes them: all arguments of the encoder in a format of its own, behind its mark.
//
// The rules are those of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col in the driver API's manual.

#pragma once

#include <cstdint>
#include <cstring>
#include <string>

struct EncodedMap {
    uint32_t mark;
    uint8_t type, rank, interleave, swizzle, promotion, fill, steps[5];
    int16_t lower[3], upper[3];
    uint64_t address, extents[5], strides[4];
    uint16_t box[5]; // of im2col: channels, pixels
};
static_assert(sizeof(EncodedMap) <= 128, "A map has 128 bytes.");

enum : uint32_t { TILED = 0x454c4954, IM2COL = 0x4f434d49 };
//: bytes of an element, by CUtensorMapDataType: 8, 16, 32, 32, 64 and 64 bits, half, float, double, bfloat16, and
// three kinds of float that are rounded
const unsigned ELEMENT_BYTES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

// Begins a map with what both encoders take; returns an empty text, or the rule that is broken.
inline std::string begin_map(EncodedMap &map, uint32_t mark, const void *place, unsigned type, unsigned rank,
                             uint64_t address, const uint64_t *extents, const uint64_t *strides, const uint32_t *steps,
                             unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill) {
    if (!place || reinterpret_cast<uintptr_t>(place) % 64 || !extents || (rank > 1 && !strides) || !steps) {
        return "a null pointer, or a map that is not aligned to 64 bytes";
    }
    if (type > 12 || rank < (mark == IM2COL ? 3 : 1) || rank > 5 || interleave != 0 || swizzle > 3 || promotion > 3) {
        return "an unknown type, rank or mode"; // ours has no interleaving
    }
    if (address % 16 || fill > 1) { // a null pointer is taken: CUTLASS makes maps of it, which are never read through
        return "an address that is not a multiple of 16 bytes, or an unknown fill";
    }
    memset(&map, 0, sizeof map);
    map.mark = mark, map.type = type, map.rank = rank, map.interleave = interleave, map.swizzle = swizzle;
    map.promotion = promotion, map.fill = fill, map.address = address;
    for (unsigned i = 0; i < rank; ++i) {
        if (extents[i] == 0 || extents[i] > uint64_t(1) << 32 || steps[i] == 0 || steps[i] > 8) {
            return "an extent outside 1 to 2^32, or a step outside 1 to 8";
        }
        map.extents[i] = extents[i], map.steps[i] = steps[i];
    }
    for (unsigned i = 0; i + 1 < rank; ++i) {
        if (strides[i] == 0 || strides[i] % 16 || strides[i] >= uint64_t(1) << 40) {
            return "a stride that is no multiple of 16 bytes below 2^40";
        }
        map.strides[i] = strides[i];
    }
    return "";
}

// A row of the box, of so many elements, against the swizzle's span.
inline std::string check_row(const EncodedMap &map, unsigned elements) {
    const unsigned bytes = elements * ELEMENT_BYTES[map.type], span[] = {~0u, 32, 64, 128};
    return bytes % 16 || bytes > span[map.swizzle] ? "a row of the box that is no multiple of 16 bytes, or too long"
                                                   : "";
}

inline std::string tiled_box(EncodedMap &map, const uint32_t *box) {
    for (unsigned i = 0; i < map.rank; ++i) {
        if (!box || box[i] == 0 || box[i] > 256) {
            return "a box outside 1 to 256 elements";
        }
        map.box[i] = box[i];
    }
    return check_row(map, box[0]);
}

inline std::string im2col_box(EncodedMap &map, const int *lower, const int *upper, unsigned channels, unsigned pixels) {
    const int most = 1 << (16 / (map.rank - 2) - 1);
    for (unsigned i = 0; i + 2 < map.rank; ++i) {
        if (!lower || !upper || lower[i] < -most || lower[i] >= most || upper[i] < -most || upper[i] >= most) {
            return "a corner outside its bits";
        }
        map.lower[i] = lower[i], map.upper[i] = upper[i];
    }
    if (channels == 0 || channels > 256 || pixels == 0 || pixels > 1024) {
        return "channels outside 1 to 256, or pixels outside 1 to 1024";
    }
    map.box[0] = channels, map.box[1] = pixels;
    return check_row(map, channels);
}
