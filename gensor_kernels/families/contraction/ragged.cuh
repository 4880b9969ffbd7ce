// Products of groups that differ in their rows: rows [ends[g - 1], ends[g]) of A and C belong to matrix g of B.
//
// The ends lie on the device (Params::d, int32), so the host launches as many blocks as any ends could need, and each
// finds its group by itself: a warp counts the tiles of 32 groups at a time. Rows behind the last end are one
// group more, whose product is zero. Ends out of order or out of range may leave rows out, but no address leaves an
// operand.
#pragma once
#include "epilogue.cuh"

// A tile's matrix of B (`params.batch`: none), its first row, and the end of its group; past all tiles, row == end.
struct GroupRows {
    i32 group, row, end;
};

// The row that a group begins with, by `ends` of `groups` groups, `step` elements apart; the caller cuts it off at the
// number of rows, which is where groups behind the last one begin.
DEVICE i32 rows_before(gptr<i32> ends, i64 step, i32 groups, i32 group) {
    const bool listed = within(0, group) && within(group - 1, groups);
    const i32 end = load_global<4>(ends + (group - 1) * step, listed).get<i32>(0);
    if (!listed)
        return group == 0 ? 0 : 0x7fffffff;
    return end < 0 ? 0 : end;
}

// Tiles of BLOCK_ROWS rows are counted through all groups; this is number `tile`. before(group) is the row that a group
// begins with. Every lane of the warp takes part.
template <int BLOCK_ROWS, class Before>
DEVICE GroupRows find_group(i32 groups, i32 rows, i32 tile, const Before &before) {
    const i32 lane = thread_index() & 31;
    i32 left = tile;
    for (i32 first = 0; within(first, groups + 1); first += 32) {
        const i32 group = first + lane, begin = before(group), end = before(group + 1);
        const i32 tiles = end > begin ? (end - begin + (BLOCK_ROWS - 1)) / BLOCK_ROWS : 0;
        i32 lower = 0, all = tiles; // of lower lanes, of the warp
        UNROLL for (int step = 1; step < 32; step *= 2) {
            const i32 other = shuffle_xor(all, step);
            lower += lane & step ? other : 0;
            all += other;
        }
        if (within(left, all)) {
            const bool mine = !within(left, lower) && within(left, lower + tiles);
            GroupRows found = {mine ? group : 0, mine ? begin + (left - lower) * BLOCK_ROWS : 0, mine ? end : 0};
            UNROLL for (int step = 1; step < 32; step *= 2) { // the others are zeros
                found.group += shuffle_xor(found.group, step);
                found.row += shuffle_xor(found.row, step);
                found.end += shuffle_xor(found.end, step);
            }
            return found;
        }
        left -= all;
    }
    return GroupRows{0, rows, rows};
}

// Places of a tile's outputs, without rows of the next group.
template <class Placement>
struct RowsOfGroup {
    const Placement &place;
    i32 end;
    MEMBER Place operator()(int group) const {
        Place at = place(group);
        at.valid = at.valid && within(at.row, end);
        return at;
    }
};
