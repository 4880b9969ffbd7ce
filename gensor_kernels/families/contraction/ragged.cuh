// Products of groups of different numbers of rows: rows [ends[g - 1], ends[g]) of A and C belong to matrix g of B.
//
// The ends are in device memory (Params::d, int32). The host therefore launches the largest number of blocks that any
// ends could need, and each block finds its group: a warp counts the tiles of 32 groups at a time. The rows after the
// last end form another group, whose product is zero. If ends are out of order or out of range, rows may be left out,
// but no address leaves an operand.
#pragma once
#include "epilogue.cuh"

// The number of a tile's group (`params.batch` for the rows after the last end), its first row, and the end of its
// group. Past all tiles, row == end.
struct GroupRows {
    i32 group, row, end;
};

// Returns the first row of a group from the `ends` of `groups` groups, which are `step` elements apart. The caller
// limits the result to the number of rows, the first row of all groups after the last one.
DEVICE i32 rows_before(gptr<i32> ends, i64 step, i32 groups, i32 group) {
    const bool listed = within(0, group) && within(group - 1, groups);
    const i32 end = load_global<4>(ends + (group - 1) * step, listed).get<i32>(0);
    if (!listed)
        return group == 0 ? 0 : 0x7fffffff;
    return end < 0 ? 0 : end;
}

// Finds tile `tile` of all groups, where a tile has `each` rows and before(group) is the first row of a group. All
// lanes of the warp call this function.
template <class Before>
DEVICE GroupRows find_group(i32 groups, i32 rows, i32 each, i32 tile, const Before &before) {
    const i32 lane = thread_index() & 31;
    i32 left = tile;
    for (i32 first = 0; within(first, groups + 1); first += 32) {
        const i32 group = first + lane, begin = before(group), end = before(group + 1);
        const i32 tiles = end > begin ? (end - begin + (each - 1)) / each : 0;
        i32 lower = 0, all = tiles; // tiles of lower lanes, and of the warp
        UNROLL for (int step = 1; step < 32; step *= 2) {
            const i32 other = shuffle_xor(all, step);
            lower += lane & step ? other : 0;
            all += other;
        }
        if (within(left, all)) {
            const bool mine = !within(left, lower) && within(left, lower + tiles);
            GroupRows found = {mine ? group : 0, mine ? begin + (left - lower) * each : 0, mine ? end : 0};
            UNROLL for (int step = 1; step < 32; step *= 2) { // the other lanes hold zeros
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

// The places of a tile's outputs, with rows of the next group marked as invalid.
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
