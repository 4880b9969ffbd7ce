// A model of tensor copies (TMA): boxes of global memory on their way into shared memory, with a 128-byte swizzle.
#pragma once
#include "mbarrier.h"

namespace emulator {

// What the host's encoding of a tensor map says (tensor_maps.py packs it): element [0, 0, 0, 0, 0] at `base`, bytes
// from element to element along each axis but the first, extents, the box that one copy moves, and whether floats are
// rounded to tf32 on their way.
struct TensorMap {
    u64 base, stride[4];
    u32 extent[5], box[5];
    u32 element, rounded, magic;
};
constexpr u32 TENSOR_MAP_MAGIC = 0x70616d74;

static Atom &atom_at(u32 address) {
    return async_state().atoms[(address - SHARED_BASE) / ATOM];
}

// Rows of the box one after the other, 128 bytes each, their 16-byte chunks permuted by the row's place in its atom.
static u32 swizzled(u32 address) {
    return address ^ (address >> 7 & 7) << 4;
}

// Where `count` elements from box position (column, row) on lie in global memory; null where one lies outside.
static const unsigned char *source(const TensorCopy &copy, u32 column, u32 row, u32 count) {
    const TensorMap &map = *(const TensorMap *)copy.map;
    const int at[5] = {copy.at[0] + (int)column, copy.at[1] + (int)row, copy.at[2], copy.at[3], copy.at[4]};
    u64 address = map.base + (u64)at[0] * map.element;
    bool inside = at[0] >= 0 && (u32)at[0] + count <= map.extent[0];
    for (int i = 1; i < 5; ++i) {
        inside = inside && at[i] >= 0 && (u32)at[i] < map.extent[i];
        address += (u64)at[i] * map.stride[i - 1];
    }
    return inside ? check_global(address, (int)(count * map.element), false, copy.file, copy.line) : nullptr;
}

// To the nearest, ties to even; infinities and NaNs are kept.
static void round_to_tf32(unsigned char *at, u32 bytes) {
    for (u32 i = 0; i < bytes; i += 4) {
        u32 bits;
        memcpy(&bits, at + i, 4);
        if ((bits & 0x7f800000) != 0x7f800000)
            bits += 0xfff + (bits >> 13 & 1);
        bits &= 0xffffe000u | ((bits & 0x7fffff) && (bits & 0x7f800000) == 0x7f800000 ? 0x1fffu : 0);
        memcpy(at + i, &bits, 4);
    }
}

static void place(unsigned char *to, const unsigned char *from, u32 bytes) {
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
}

static void deliver(Block &block, const TensorCopy &copy) {
    const TensorMap &map = *(const TensorMap *)copy.map;
    const u32 each = 16 / map.element;
    for (u32 row = 0; row < map.box[1]; ++row)
        for (u32 column = 0; column < map.box[0]; column += each) {
            const u32 at = swizzled(copy.to + row * 128 + column * map.element);
            unsigned char *to = block.shared + (at - SHARED_BASE);
            if (copy.at[0] + (int)(column + each) <= (int)map.extent[0])
                place(to, source(copy, column, row, each), 16);
            else
                for (u32 i = 0; i < each; ++i)
                    place(to + i * map.element, source(copy, column + i, row, 1), map.element);
            if (map.rounded)
                round_to_tf32(to, 16);
        }
    MBarrier &barrier = block.async.barriers[copy.barrier];
    for (u32 at = copy.to; at < copy.to + map.box[1] * 128; at += ATOM)
        block.async.atoms[(at - SHARED_BASE) / ATOM].in_flight = false;
    barrier.bytes -= 128 * (int)map.box[1];
    settle(barrier, copy.file, copy.line);
}

// Nobody can go on: one of the copies on their way arrives. False where there is none.
static bool deliver_one() {
    for (Block &block : machine.blocks) {
        std::vector<TensorCopy> &queue = block.async.copies;
        if (queue.empty())
            continue;
        size_t which = machine.request->order == RANDOM ? next_random() % queue.size() : 0;
        TensorCopy copy = queue[which];
        queue.erase(queue.begin() + (long)which);
        Thread *before = current;
        current = before ? before : &block.threads[0]; // a fault is some thread's
        deliver(block, copy);
        current = before;
        return true;
    }
    return false;
}

static void check_map(const TensorMap &map, const TensorCopy &copy) {
    const char *file = copy.file;
    int line = copy.line;
    if ((u64)&map % 64 || map.magic != TENSOR_MAP_MAGIC)
        invalid("no tensor map", file, line);
    if (copy.to % ATOM || map.box[1] % 8)
        fault(MISALIGNED,
              "a tensor copy at %s line %d to shared byte %u: with a 128-byte swizzle, tiles begin at and "
              "hold multiples of 1024 bytes",
              file, line, copy.to - SHARED_BASE);
    if (map.box[0] * map.element != 128 || map.box[1] > 256 || map.base % 16 ||
        (map.stride[0] | map.stride[1] | map.stride[2] | map.stride[3]) % 16)
        invalid("a box that no tensor map can have", file, line);
    check_shared(copy.to + (map.box[1] - 1) * 128, 16, file, line);
}

// No product may still read what the copy overwrites, no other copy may be on its way there, and no ordinary access
// may have touched it: kernels keep memory for copies apart from memory for loads and stores until the copies end.
static void claim(TensorCopy &copy, u32 bytes) {
    const WarpAsync &own = warp_async();
    for (u32 to = copy.to; to < copy.to + bytes; to += ATOM) {
        Atom &atom = atom_at(to);
        bool ordered = !atom.in_flight && !atom.reading && !atom.touched;
        for (size_t w = 0; w < atom.read.size(); ++w)
            ordered = ordered && atom.read[w] <= own.known[w];
        if (machine.request->races && !ordered)
            fault(RACE, "the tensor copy at %s line %d to shared byte %u is not ordered with %s line %d", copy.file,
                  copy.line, to - SHARED_BASE,
                  atom.touched     ? "the ordinary access of"
                  : atom.in_flight ? "the copy of"
                                   : "the product of",
                  atom.touched     ? atom.touched
                  : atom.in_flight ? atom.line
                                   : atom.read_line);
        atom.in_flight = true, atom.filled = true, atom.line = copy.line;
        atom.barrier = copy.barrier, atom.phase = async_state().barriers[copy.barrier].phase;
        atom.read.assign(own.known.size(), 0);
    }
}

void copy_tensor(u32 to, const void *map, u32 address, const int *at, const char *file, int line) {
    tick();
    const MBarrier &barrier = find_mbarrier(address, true, file, line);
    TensorCopy copy{to, map, {at[0], at[1], at[2], at[3], at[4]}, 0, file, line};
    copy.barrier = (u32)(&barrier - async_state().barriers.data());
    const TensorMap &facts = *(const TensorMap *)map;
    check_map(facts, copy);
    claim(copy, facts.box[1] * 128);
    count(TENSOR_COPIES) += 1, count(COPY_1 + 4) += facts.box[1] * 8;
    if (machine.request->early)
        deliver(*current->block, copy);
    else
        async_state().copies.push_back(copy);
}

} // namespace emulator
