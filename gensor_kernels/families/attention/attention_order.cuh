// Attention: the order in which blocks start.
//
// A unit is a part of the keys of an entry. Its blocks have tiles of rows, of which the last see most keys where
// attention is causal, and come first. Unit by unit, the long tiles of the last unit would start when all others are
// nearly done, and most multiprocessors would wait for them. With LONGEST_FIRST `raster` units are taken together, the
// last tiles of all of them first (longest processing time first, as in FlashAttention-3). The host takes as many as
// leave their keys and values in the L2 (order.py), and one where all tiles see as many keys.
#pragma once
#include "intrinsics.cuh"
#include "params.cuh"

// The number, counted unit by unit, of the tile of the block that starts as number `block`.
DEVICE u32 ordered(const Params &params, u32 block) {
    if constexpr (!LONGEST_FIRST)
        return block;
    const u32 tiles = (u32)params.tiles_m, raster = (u32)params.raster;
    const u32 units = divided((u32)grid_size(), params.by.tiles).quotient;
    const u32 first = divided(divided(block, params.by.tiles).quotient, params.by.group).quotient * raster;
    const u32 together = minimum(raster, units - first), place = block - first * tiles, tile = place / together;
    if (together < raster)
        cover("raster_tail");
    return (first + (place - tile * together)) * tiles + tile;
}
