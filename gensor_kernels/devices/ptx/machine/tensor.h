// Copies between tensors and shared memory (PTX ISA 5.5 "Tensors" and 9.7.9.27 "cp.async.bulk.tensor"), by maps in the
// layout of tensor_maps.py.
#pragma once
#include "mbarrier.h"

enum TensorType : u8 { FLOAT32 = 7, FLOAT32_FTZ = 10, TFLOAT32, TFLOAT32_FTZ };
struct Map {
    u64 address, extent[5], stride[4];
    u16 box[5]; // or channels and pixels
    u8 step[5], rank;
    s16 lower[3], upper[3];
    u8 type, element, interleave, swizzle, fill, pixels;
    u16 unused;
    u32 magic;
    u64 unused_too;
};
static_assert(sizeof(Map) == 128);

namespace {
constexpr u32 MAP_MAGIC = 0x70616d54;

const Map *map_at(const Thread &t, u64 address) {
    aligned_to(address, 64, "tensor map");
    if (address >> 56 != PARAM_WINDOW >> 56)
        fault("map", "the tensor map at %#llx is not a parameter", (unsigned long long)address);
    const Map *const map = (const Map *)param_at(t, address - PARAM_WINDOW, sizeof(Map));
    if (map->magic != MAP_MAGIC)
        fault("map", "no tensor map at byte %llu of the parameters", (unsigned long long)(address - PARAM_WINDOW));
    return map;
}

// Rows of a box are adjacent in shared memory; with a swizzle, a row is as wide as the swizzle.
struct Shape {
    u32 rows, row_bytes;
};
Shape shape_of(const Map &map) {
    u32 rows = 1;
    if (map.pixels)
        rows = map.box[1];
    else
        for (u32 d = 1; d < map.rank; d++)
            rows *= (map.box[d] + map.step[d] - 1) / map.step[d];
    const u32 row_bytes = map.box[0] * map.element;
    if (map.interleave || map.fill || (map.swizzle && row_bytes != 16u << map.swizzle))
        fault("map", "interleaved, filled with NaN, or narrower than its swizzle: not executed");
    return {rows, row_bytes};
}
// The swizzled address of 16 bytes in shared memory: bits from 4 on, xor the same number of bits from 7 on.
inline u32 swizzled(const Map &map, u32 address) {
    return address ^ (address >> 3 & ((1u << map.swizzle) - 1) << 4);
}

// Call row(number, first coordinate, address of element 0 there or none) for each row of a box.
template <class Row>
void walk_box(const Map &map, const Bulk &bulk, u32 rows, Row row) {
    s64 at[5];
    u32 counted[5] = {};
    for (u32 d = 0; d < map.rank; d++)
        at[d] = bulk.at[d];
    const u32 images = map.rank - 1;
    if (map.pixels)
        for (u32 d = 1; d < images; d++)
            if (at[d] < map.lower[d - 1] || at[d] > (s64)map.extent[d] - 1 + map.upper[d - 1])
                fault("map", "coordinate %lld of axis %u lies outside of the pixel box", (long long)at[d], d);
    for (u32 i = 0; i < rows; i++) {
        u64 address = map.address;
        bool inside = true;
        for (u32 d = 1; d < map.rank; d++) {
            const s64 c = at[d] + (map.pixels && d < images ? bulk.moved[d - 1] : 0);
            inside &= c >= 0 && c < (s64)map.extent[d];
            address += (u64)c * map.stride[d - 1];
        }
        row(i, inside, address);
        for (u32 d = 1; d < map.rank; d++) {
            at[d] += map.step[d];
            if (map.pixels) {
                if (d == images || at[d] <= (s64)map.extent[d] - 1 + map.upper[d - 1])
                    break;
                at[d] = map.lower[d - 1];
            } else {
                if (++counted[d] * map.step[d] < map.box[d])
                    break;
                counted[d] = 0, at[d] = bulk.at[d];
            }
        }
    }
}
// The elements of a row that are in the tensor: from the first, and how many.
struct Part {
    s64 skipped, count;
};
Part inside_row(const Map &map, s64 first) {
    const s64 skipped = std::max<s64>(0, -first);
    return {skipped, std::max<s64>(0, std::min<s64>(map.box[0], (s64)map.extent[0] - first) - skipped)};
}

// The bits of a tf32: ten of the mantissa, rounded to nearest even (5.5.1).
inline u32 rounded_tf32(u32 bits) {
    if ((bits & 0x7f800000) == 0x7f800000)
        return bits;
    return (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}
void convert_row(const Map &map, u8 *row, u32 bytes) {
    if (map.type != FLOAT32_FTZ && map.type != TFLOAT32 && map.type != TFLOAT32_FTZ)
        return;
    for (u32 i = 0; i < bytes; i += 4) {
        u32 bits = loaded<u32>(row + i);
        if (map.type != TFLOAT32 && !(bits & 0x7f800000))
            bits &= 0x80000000;
        stored<u32>(row + i, map.type == FLOAT32_FTZ ? bits : rounded_tf32(bits));
    }
}

// Write a copy's bytes to shared memory, and count them at its mbarrier, which is this block's.
void deliver(Block &block, Arrival &arrival) {
    if (block.ended || arrival.target->ended)
        fault("ended", "a copy reaches block %u, which has ended", arrival.target->index);
    const Map &map = *arrival.map;
    const Shape shape = shape_of(map);
    const Part part = inside_row(map, arrival.bulk.at[0]);
    u8 row[2048], *const shared = shared_of(*arrival.target, arrival.to, arrival.bytes) - arrival.to;
    walk_box(map, arrival.bulk, shape.rows, [&](u32 number, bool inside, u64 address) {
        std::memset(row, 0, shape.row_bytes);
        if (inside && part.count) {
            const u32 bytes = (u32)part.count * map.element;
            const u64 from = address + (u64)(arrival.bulk.at[0] + part.skipped) * map.element;
            std::memcpy(row + part.skipped * map.element, global_at(*arrival.issuer, from, bytes, false), bytes);
            convert_row(map, row, shape.row_bytes);
        }
        for (u32 i = 0; i < shape.row_bytes; i += 16)
            std::memcpy(shared + swizzled(map, arrival.to + number * shape.row_bytes + i), row + i, 16);
    });
    arrival.delivered = true;
    Mbarrier &m = *found_mbarrier(block, arrival.mbarrier);
    if (m.phase != arrival.phase)
        fault("transaction", "a copy arrives behind the phase of the mbarrier at %#x of block %u that it belongs to",
              m.address, block.index);
    if (Causality *causality = arrival.issuer->causality)
        causality->publish(arrival.operation, key_of(block, m, 0), key_of(block, m, arrival.phase));
    count_bytes(block, m, -(s64)arrival.bytes);
    settle(block, m);
}
// Deliver a copy for whose mbarrier a thread of the block waits; false where there is none. `from`: the first to check.
bool deliver_awaited(Block &block, u32 from) {
    std::vector<Arrival> &arrivals = block.traffic->arrivals;
    for (size_t i = 0; i < arrivals.size(); i++) {
        Arrival &each = arrivals[(from + i) % arrivals.size()];
        if (each.delivered)
            continue;
        for (u32 n = 0; n < block.launch->threads; n++)
            if (block.threads[n].stop == PHASE && block.threads[n].awaited == each.mbarrier) {
                deliver(block, each);
                return true;
            }
    }
    return false;
}
// Deliver any copy: for threads that poll a phase.
bool deliver_any(Block &block) {
    for (Arrival &each : block.traffic->arrivals)
        if (!each.delivered) {
            deliver(block, each);
            return true;
        }
    return false;
}
// The rows of a box in global memory that are in the tensor.
void covers_box(Causality &causality, u32 operation, const Map &map, const Bulk &bulk, bool write) {
    const Part part = inside_row(map, bulk.at[0]);
    walk_box(map, bulk, shape_of(map).rows, [&](u32, bool inside, u64 address) {
        if (inside && part.count)
            causality.covers_global(operation, address + (u64)(bulk.at[0] + part.skipped) * map.element,
                                    (u32)part.count * map.element, write);
    });
}
void load_into(Thread &t, Block &block, Block &signalled, const Bulk &bulk, const Map *map, u32 to, u32 mbarrier) {
    if (block.ended || signalled.ended)
        fault("ended", "a copy goes to block %u, which has ended", block.index);
    const Shape shape = shape_of(*map);
    const u32 bytes = shape.rows * shape.row_bytes;
    shared_of(block, to, bytes);
    const Mbarrier &m = mbarrier_at(t, signalled, mbarrier, true);
    proxied(t, block, to, bytes, ARRIVING | LEAVING | OBJECT, "a copy writes to");
    use(block, to, bytes, ARRIVING);
    u32 operation = 0;
    if (t.causality) {
        operation = t.causality->issue(t.slot, "cp.async.bulk.tensor", true);
        t.causality->covers_shared(operation, block.resident, to - SHARED_BASE, bytes, true);
        covers_box(*t.causality, operation, *map, bulk, false);
    }
    signalled.traffic->arrivals.push_back({bulk, &t, &block, map, to, mbarrier, bytes, m.phase, false, operation});
    if (!block.launch->late)
        deliver(signalled, signalled.traffic->arrivals.back());
}

// ---- Out of shared memory

void read_box(Departure &departure) {
    const Map &map = *departure.map;
    const u8 *const shared = departure.issuer->block->shared - SHARED_BASE;
    departure.box.resize(departure.bytes);
    for (u32 i = 0; i < departure.bytes; i += 16)
        std::memcpy(&departure.box[i], shared + swizzled(map, (u32)departure.bulk.shared + i), 16);
}
void write_box(Departure &departure) {
    departure.written = true;
    const Map &map = *departure.map;
    const Shape shape = shape_of(map);
    const s64 first = departure.bulk.at[0];
    const Part part = inside_row(map, first);
    walk_box(map, departure.bulk, shape.rows, [&](u32 number, bool inside, u64 address) {
        if (!inside || !part.count)
            return;
        const u32 bytes = (u32)part.count * map.element;
        u8 *const from = &departure.box[number * shape.row_bytes + part.skipped * map.element];
        convert_row(map, from, bytes);
        std::memcpy(global_at(*departure.issuer, address + (u64)(first + part.skipped) * map.element, bytes, true),
                    from, bytes);
    });
}
// At the end of a block, its copies must be complete.
void check_traffic(Block &block) {
    Traffic &traffic = *block.traffic;
    for (const Arrival &each : traffic.arrivals)
        fault("in_flight", "block %u ends while a copy to %#x is in flight, or nobody has waited for it", block.index,
              each.to);
    for (const Mbarrier &each : traffic.mbarriers)
        if (each.bytes)
            fault("transaction", "block %u ends while its mbarrier at %#x expects %lld bytes", block.index,
                  each.address, (long long)each.bytes);
    for (const Visit &each : traffic.visits)
        if (each.commit || each.thread->order.clustered <= each.tick)
            fault("ended",
                  "block %u ends, and nothing says that %sthread %u of block %u has arrived at its mbarrier at %#x",
                  block.index, each.commit ? "a commit of " : "", each.thread->index, each.thread->block->index,
                  each.mbarrier);
    for (Departure &each : traffic.departures) {
        if (!each.waited)
            fault("in_flight", "block %u ends while a copy from %#llx reads its shared memory", block.index,
                  (unsigned long long)each.bulk.shared);
        if (!each.written)
            write_box(each);
    }
    traffic.departures.clear();
}
} // namespace

void load_tensor(Thread &t, const Bulk &given) {
    const Map *const map = map_at(t, given.map);
    if (map->rank != given.rank || (bool)map->pixels != given.pixels)
        fault("map", "a copy of %u axes%s by a map of %u%s", given.rank, given.pixels ? " of pixels" : "", map->rank,
              map->pixels ? " of pixels" : "");
    const u32 most_moved = given.rank == 3 ? 0xffff : given.rank == 4 ? 0xff : 0x1f; // 5.5.4.1
    for (const u16 each : given.moved)
        if (given.pixels && each > most_moved)
            fault("map", "an offset of %u pixels, more than %u", each, most_moved);
    Bulk bulk = given;
    Block &signalled = block_of(t, bulk.mbarrier);
    if (given.multicast) {
        const u32 to = own_address(t, given.shared);
        if (!given.pair)
            own_address(t, given.mbarrier);
        aligned_to(to, 128, "shared");
        if (!given.blocks || given.blocks >> t.block->launch->cluster)
            fault("invalid", "a copy to the blocks %#x of a cluster of %u", given.blocks, t.block->launch->cluster);
        for (u32 rank = 0; rank < t.block->launch->cluster; rank++)
            if (given.blocks >> rank & 1)
                load_into(t, t.block->first[rank],
                          t.block->first[given.pair ? (rank & ~1u) | (signalled.rank & 1) : rank], bulk, map, to,
                          (u32)bulk.mbarrier);
        return;
    }
    Block &block = block_of(t, bulk.shared);
    if (&block != &signalled && !(given.pair && block.rank / 2 == signalled.rank / 2))
        fault("invalid", "the mbarrier of a copy is in another block than its destination");
    aligned_to(bulk.shared, 128, "shared");
    load_into(t, block, signalled, bulk, map, (u32)bulk.shared, (u32)bulk.mbarrier);
}
void store_tensor(Thread &t, const Bulk &bulk) {
    const Map *const map = map_at(t, bulk.map);
    if (map->rank != bulk.rank || map->pixels)
        fault("map", "a copy of %u axes by a map of %u%s", bulk.rank, map->rank, map->pixels ? " of pixels" : "");
    own_address(t, bulk.shared);
    aligned_to(bulk.shared, 128, "shared");
    const Shape shape = shape_of(*map);
    const u32 bytes = shape.rows * shape.row_bytes;
    shared_of(*t.block, bulk.shared, bytes);
    proxied(t, *t.block, bulk.shared, bytes, ARRIVING | OBJECT, "a copy reads");
    use(*t.block, bulk.shared, bytes, LEAVING);
    std::vector<Departure> &departures = t.block->traffic->departures;
    u32 reads = 0, writes = 0;
    if (t.causality) {
        reads = t.causality->issue(t.slot, "cp.async.bulk.tensor from shared memory", true);
        t.causality->covers_shared(reads, t.block->resident, bulk.shared - SHARED_BASE, bytes, false);
        writes = t.causality->issue(t.slot, "cp.async.bulk.tensor to global memory", true);
        covers_box(*t.causality, writes, *map, bulk, true);
    }
    departures.push_back({bulk, &t, map, bytes, t.bulk_groups, false, false, {}, reads, writes});
    if (!t.block->launch->late)
        read_box(departures.back()), write_box(departures.back());
}
void check_map(const Thread &t, u64 address) {
    map_at(t, address);
}
void commit_bulk(Thread &t) {
    t.bulk_groups++;
}
// Wait until at most `groups_left` of the thread's latest groups still read shared memory, or are still in flight.
void await_bulk(Thread &t, u32 groups_left, bool only_reads) {
    std::vector<Departure> &departures = t.block->traffic->departures;
    size_t left = 0;
    for (Departure &each : departures) {
        const bool over = each.issuer == &t && each.group < t.bulk_groups && t.bulk_groups - each.group > groups_left;
        if (over && !each.waited) {
            if (!each.written)
                read_box(each);
            each.waited = true;
            if (t.causality)
                t.causality->finish(each.reads, t.slot);
            finish_use(*t.block, each.bulk.shared, each.bytes, LEAVING);
        }
        if (over && !only_reads) {
            if (!each.written)
                write_box(each);
            if (t.causality)
                t.causality->finish(each.writes, t.slot);
            continue;
        }
        if (&departures[left] != &each)
            departures[left] = std::move(each);
        left++;
    }
    departures.resize(left, Departure{});
    for (const Departure &each : departures)
        if (!each.waited)
            use(*t.block, each.bulk.shared, each.bytes, LEAVING);
}
