"""Mutants that no test can catch, and why: each behaves like the original."""

_EXTRA_STEP = (
    "Where the range of k is whole steps, the loop runs once more. Every step asks for the step behind it, also the "
    "last one, and loads and copies past the end of k give zeros: the extra step adds products of zeros, and what it "
    "asks for in turn is zeros again. No address outside an operand is read, C is the same, only time is lost."
)

_NO_STEP = (
    "Behind the last step of a run-time list lie zeros: code 0 is no operation and takes no operand. Only int32 "
    "accumulators would turn into floats there, and the int8 Programs of the contraction families catch that; rows "
    "folds integers without an epilogue."
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
_NO_PIECE = "What a thread reads past the last piece lies in the image and is not stored: only time is lost."

_TILES_END = "A tile's outputs end at n or before, which its placement asks for."

_EMPTY_GROUPS = (
    "Groups past the rest begin and end at m: they have no tiles. Counting 32 of them more changes nothing, and reads "
    "nothing."
)
_NEXT_SLICE = (
    "Behind the last row of a slice lies the next slice, and exponents behind the last one. What is read of them goes "
    "into outputs past the edge, which are not stored, and whose sums nobody looks at."
)
_WHOLE_ROWS_OF_SLICES = "Rows of slices are multiples of 16 bytes: no access begins at the last byte."
_BEHIND_ROWS = (
    "Tensor copies bring zeros behind row m, and stores ask for it. An end behind m lengthens its group's tiles; those "
    "of groups that follow begin behind it and have none, so that tiles of rows before m are counted alike."
)
_ONE_TILE_ROW = "gemv walks one row of tiles at a time: both arguments are 1 or more, and the first is 1."

_NO_COLUMN = (
    "Columns past the last one are read from the tile for nothing: sums and stores ask for the column themselves."
)
_NO_ROW = "Rows past m are normalised for nothing: operands are not read and nothing is stored there."
_NO_COLUMNS_LEFT = "A chunk that begins at n has no columns: it adds nothing and stores nothing."
_WHOLE_STORES = (
    "Columns of C, of tiles and of chunks are multiples of the columns per store, two or more in the Programs of this "
    "group, so that no access begins at the last column. Those of simt store single columns."
)

_UNUSED_STRIDE = (
    "Of a K-contiguous tile with a 128-byte swizzle, products do not read the leading offset (PTX ISA, strides of "
    "matrix descriptors: not used, assumed to be 1)."
)
_WHOLE_CHANNELS = (
    "Channels of an image that copies read are multiples of 16 bytes, and so are those of a step: none begins at the "
    "last channel."
)
_FEWER_REGISTERS = (
    "Registers that are not taken are not used: the compiler then allocates no more than there are at entry. Sums are "
    "the same, spills cost time only, and tests of the machine code look for the exchange."
)

_FILTERS_BEHIND = (
    "Behind the last packed image lie the filters: one pixel too many is read from there, and has no output. A guard "
    "that lets all through is found out."
)

_ZERO_TAPS = (
    "Taps behind the window's last column are zeros in shared memory, and matter only beside infinite elements, which "
    "problems of verification have none of: programs/test_window_infinite.py catches both."
)
_WHOLE_TAPS = "Both numbers are multiples of the columns that are taken at once."

_SPACING = "The chunk behind the filters of an octet keeps octets in different banks: nobody reads it."
_IMAGE_AGAIN = "Behind the last tile are tiles of other filters on the same images: their lines come for nothing."

_ONE_PLACE = (
    "Threads without an output have no place, and know so before; the columns of C are a multiple of those that a "
    "thread stores, or it stores one."
)
_WHOLE_STEPS = "A phase's k, and what a part has of it, is a multiple of a step."
_NO_ROWS = "A tile that begins behind a phase's last row has no output: nothing of it is stored."

#: name of the mutant, behind its group where the reason holds there only -> why it cannot matter
EQUIVALENT = {
    "strip_filters.cuh within(chunk, FILTER_BYTES / 16) -> bound - 1": _SPACING,
    "strip_filters.cuh within(own, BLOCK_F) -> bound + 1": _SPACING,
    "contraction_strip.cu within(next, strip.tiles) -> deleted": _IMAGE_AGAIN,
    "contraction_strip.cu within(next, strip.tiles) -> bound + 1": _IMAGE_AGAIN,
    "patch_filters.cuh within(p * PIECE, left) -> bound - 1": _WHOLE_COPIES,
    "patch_filters.cuh within(tap, count) -> bound + 1": _NO_TAPS_LEFT,
    "patch_image.cuh within(piece, pieces) -> deleted": _NO_PIECE,
    "patch: epilogue_operand.cuh within(at.column, params.n) -> deleted": _TILES_END,
    "patch: epilogue_operand.cuh within(at.column, params.n) -> bound + 1": _TILES_END,
    "patch: contraction.cuh within(at.column, params.n) -> deleted": _TILES_END,
    "patch: contraction.cuh within(at.column, params.n) -> bound + 1": _TILES_END,
    "patch: epilogue.cuh within(column, (i64)params.n) -> deleted": _TILES_END,
    "patch: epilogue.cuh within(column, (i64)params.n) -> bound + 1": _TILES_END,
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
    """Whether there is a proof for a mutant, everywhere or in this group of Programs."""
    return mutant in EQUIVALENT or f"{group}: {mutant}" in EQUIVALENT
