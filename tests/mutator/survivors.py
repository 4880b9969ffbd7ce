"""Mutants that no test can catch, with the reason why each behaves like the original."""

_EXTRA_STEP = (
    "Where the range of k is a multiple of a step, the loop runs once more. Every step requests the next one, also the "
    "last step, and loads and copies past the end of k give zeros: the extra step adds products of zeros and requests "
    "zeros again. No address outside an operand is read, and C is the same: only time is lost."
)

_NO_STEP = (
    "Behind the last step of a run-time list lie zeros: code 0 is no operation and takes no operand. Only int32 "
    "accumulators would turn into floats there, and the int8 Programs of the contraction families catch that; the rows "
    "family reduces integers without an epilogue."
)

_NO_OPERATION = (
    "Attention sums in float. Entries of Params behind the last operation are zeros, and so are the bytes of the tail "
    "that a seventh operation would be read from: code 0 reads no operand and changes no float."
)
_PAIRS = (
    "cp.async moves 4 bytes or more, which are two elements of 16 bits or more: columns and the size of the head are "
    "multiples of two, and parts are stored in pairs at least, so that no access starts at the last column. Programs "
    "of the other group move single elements of odd heads."
)
_PADDED_ROW = (
    "Only rows whose neighbouring threads take neighbouring channels are uneven, and those end in 4 or more words of "
    "padding, which nothing reads: one entry too many is stored there."
)
_NOTHING_RESTRICTED = (
    "Where every row sees all keys of the tile, restricting the scores to the keys that rows see changes none of them."
)

_WHOLE_COPIES = (
    "Filters and steps are whole copies of two elements or more, so that none begins at the last k of a filter."
)
_NO_TAPS_LEFT = "A group of taps past the last one reads the last word again, and stores nothing."
_NO_PIECE = "Reads past the last piece stay inside the image and are not stored: only time is lost."

_TILES_END = "A tile's outputs end at n or before, because its placement checks that."

_EMPTY_GROUPS = (
    "Groups past the last one begin and end at m: they have no tiles. Counting 32 more of them changes nothing and "
    "reads nothing."
)
_NEXT_SLICE = (
    "Behind the last row of a slice lies the next slice, and exponents behind the last one. Reads of them go into "
    "outputs past the edge, which are not stored and not used."
)
_WHOLE_ROWS_OF_SLICES = "Rows of slices are multiples of 16 bytes: no access begins at the last byte."
_BEHIND_ROWS = (
    "Tensor copies bring zeros behind row m, and stores check it. An end behind m lengthens its group's tiles; later "
    "groups begin behind it and have no tiles, so that the tiles of rows before m keep their numbers."
)
_ONE_TILE_ROW = "gemv walks one row of tiles at a time: both arguments are 1 or more, and the first is 1."

_NO_COLUMN = "Columns past the last one are read from the tile in vain: sums and stores check the column themselves."
_NO_ROW = "Rows past m are normalised in vain: no operand is read and nothing is stored there."
_NO_COLUMNS_LEFT = "A chunk that begins at n has no columns: it adds nothing and stores nothing."
_WHOLE_STORES = (
    "Columns of C, of tiles and of chunks are multiples of the columns per store, two or more in the Programs of this "
    "group, so that no access begins at the last column. The Programs of simt store single columns."
)

_UNUSED_STRIDE = (
    "For a K-contiguous tile with a 128-byte swizzle, products do not read the leading offset (PTX ISA, strides of "
    "matrix descriptors: not used, assumed to be 1)."
)
_WHOLE_CHANNELS = (
    "The channels of an image that copies read, and the channels of a step, are multiples of 16 bytes: no copy begins "
    "at the last channel."
)
_FEWER_REGISTERS = (
    "Registers that are not taken are not used: the compiler then allocates no more than there are at entry. Sums are "
    "the same, spills cost time only, and tests of the machine code look for the exchange."
)

_FILTERS_BEHIND = (
    "Behind the last packed image lie the filters: one pixel too many is read from there, and has no output. Deleting "
    "the guard is caught."
)

_ZERO_TAPS = (
    "Taps behind the window's last column are zeros in shared memory, and matter only next to infinite elements, which "
    "verification does not have: programs/test_window.py catches both."
)
_WHOLE_TAPS = "Both numbers are multiples of the columns that are taken at once."

_SPACING = "The chunk behind the filters of an octet keeps octets in different banks: it is never read."
_IMAGE_AGAIN = "Behind the last tile are tiles of other filters on the same images: their lines are loaded in vain."

_ONE_PLACE = (
    "Threads without an output are excluded before; the columns of C are a multiple of the columns per thread, or a "
    "thread stores one column."
)
_WHOLE_STEPS = "A phase's k, and each part's share of it, is a multiple of a step."
_NO_ROWS = "A tile that begins behind a phase's last row has no output: nothing of it is stored."

#: Reasons by the mutant's name, with its group in front where the reason holds only there.
EQUIVALENT = {
    "strip_filters.cuh within(chunk, FILTER_BYTES / 16) -> bound - 1": _SPACING,
    "strip_filters.cuh within(own, BLOCK_F) -> bound + 1": _SPACING,
    "contraction_strip.cu within(next, strip.tiles) -> deleted": _IMAGE_AGAIN,
    "contraction_strip.cu within(next, strip.tiles) -> bound + 1": _IMAGE_AGAIN,
    "patch_filters.cuh within(p * PIECE, left) -> bound - 1": _WHOLE_COPIES,
    "patch_filters.cuh within(tap, count) -> bound + 1": _NO_TAPS_LEFT,
    "patch_image.cuh within(piece, pieces) -> deleted": _NO_PIECE,
    **{
        f"patch: {site} -> {how}": _TILES_END
        for site in (
            *("epilogue_operand.cuh within(at.column, params.n)", "contraction.cuh within(at.column, params.n)"),
            "epilogue.cuh within(column, (i64)params.n)",
        )
        for how in ("deleted", "bound + 1")
    },
    "patch_image.cuh within(piece, pieces) -> bound + 1": _NO_PIECE,
    "contraction_simt.cu within(k, tile.k_end) -> bound + 1": _EXTRA_STEP,
    "gemv.cu within(k, tile.k_end) -> bound + 1": _EXTRA_STEP,
    "gemv: contraction.cuh minimum((u32)params.raster, (u32)params.tiles_m - first_row) -> first alone": _ONE_TILE_ROW,
    "contraction_mma.cu within(step, steps) -> bound + 1": _EXTRA_STEP,
    "mma_floats.cuh within(step, steps) -> bound + 1": _EXTRA_STEP,
    "wgmma_ring.cuh matrix_descriptor(tile + first * 128, 16, ATOM) -> leading * 2": _UNUSED_STRIDE,
    "wgmma: wgmma_requests.cuh within(pixel[0], window.ks[1]) -> bound - 1": _WHOLE_CHANNELS,
    "packed_wgmma: wgmma_requests.cuh within(pixel[0], window.ks[1]) -> bound - 1": _WHOLE_CHANNELS,
    "contraction_wgmma.cu take_registers<ENTRY, TAKEN>() -> deleted": _FEWER_REGISTERS,
    "contraction_phased.cu within(k, tile.k_end) -> bound + 1": _EXTRA_STEP,
    "contraction_phased.cu within(k, tile.k_end) -> bound - 1": _WHOLE_STEPS,
    "contraction_phased_mma.cu within(step, steps) -> bound + 1": _EXTRA_STEP,
    "contraction_phased_mma.cu within(step, steps) #2 -> bound + 1": _EXTRA_STEP,
    "phases.cuh within(tile.row, own.m) -> bound + 1": _NO_ROWS,
    **{
        f"{group}: {file}.cuh within({what}) -> {how}": _ONE_PLACE
        for group in ("phased", "phased_mma")
        for file, what in (
            *(("epilogue", "at.row, params.m"), ("epilogue", "column, (i64)params.n")),
            *(("epilogue_operand", "at.row, params.m"), ("epilogue_operand", "at.column, params.n")),
        )
        for how in ("deleted", "bound + 1")
    },
    "winograd.cu within(k, tile.k_end) -> bound + 1": _EXTRA_STEP,
    "winograd_tile.cuh within(entry() + e * ENTRY_PACE, EXTENT) -> bound + 1": _PADDED_ROW,
    "epilogue.cuh within(s, params.steps) -> bound + 1": _NO_STEP,
    "norm.cuh minimum(params.normed.before, params.steps) -> first alone": _NO_OPERATION,
    "norm.cuh within(column, BLOCK_N) -> bound + 1": _NO_COLUMN,
    "norm.cuh within(tile.row + row, params.m) -> deleted": _NO_ROW,
    "norm.cuh within(tile.row + row, params.m) -> bound + 1": _NO_ROW,
    "norm.cuh within(first, params.n) -> bound + 1": _NO_COLUMNS_LEFT,
    **{
        f"mma {copies}: norm.cuh within({what}) -> bound - 1": _WHOLE_STORES
        for copies in ("cp.async", "registers")
        for what in ("first, params.n", "column, BLOCK_N", "column, params.n")
    },
    "sliced: mma_tiles.cuh within(start + i * (Shape::K_CONTIGUOUS ? Shape::LINES : Shape::PACE), "
    "extent) -> bound + 1": _NEXT_SLICE,
    "window_slide.cuh within(s + j, slide.window[1]) -> deleted": _ZERO_TAPS,
    "window_slide.cuh within(s + j, slide.window[1]) -> bound + 1": _ZERO_TAPS,
    "window_slide.cuh within(s, whole) -> bound - 1": _WHOLE_TAPS,
    "packed: window_walk.cuh within(first_entry + e * ENTRY_PACE, extent) -> bound + 1": _FILTERS_BEHIND,
    "sliced: mma_tiles.cuh within(k, k_left) -> bound - 1": _WHOLE_ROWS_OF_SLICES,
    "slices.cuh within(first, pitch) -> bound - 1": _WHOLE_ROWS_OF_SLICES,
    "wgmma: ragged.cuh minimum(end, params.m) -> first alone": _BEHIND_ROWS,
    "ragged.cuh within(first, params.batch + 1) -> bound + 1": _EMPTY_GROUPS,
    "attention.cu within(work.seen, key + BLOCK_K) -> bound + 1": _NOTHING_RESTRICTED,
    "attention cp.async: epilogue.cuh within(s, params.steps) -> bound + 1": _NO_OPERATION,
    "attention registers: epilogue.cuh within(s, params.steps) -> bound + 1": _NO_OPERATION,
    "attention cp.async: mma_tiles.cuh within(start + i * (Shape::K_CONTIGUOUS ? Shape::LINES : Shape::PACE), "
    "extent) -> bound - 1": _PAIRS,
    "attention cp.async: attention_finish.cuh within(at.column, params.n) -> bound - 1": _PAIRS,
}


def is_equivalent(group: str, mutant: str) -> bool:
    """Return whether there is a proof for a mutant, for all Programs or for this group."""
    return mutant in EQUIVALENT or f"{group}: {mutant}" in EQUIVALENT
