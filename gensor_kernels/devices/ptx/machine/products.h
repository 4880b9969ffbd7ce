// Products of warpgroups, as chapter 9.7.15 of the PTX ISA 8.x defines them. A warp issues an instruction on its own
// (.sync joins the lanes of a warp); it must be the instruction that the other three warps of its warpgroup issue
// (.aligned). A warp reads tiles when it issues a product or, with `late`, at the latest possible time: the first wait
// for this product.
#pragma once
#include "mbarrier.h"
#include "sums.h"

namespace {

// ---- Tiles in shared memory

// A matrix descriptor (9.7.15.5.1.2.2). `row`: bytes of a row of the swizzle's pattern, 16 without a swizzle.
struct Descriptor {
    u32 start, leading, stride, base, row;

    static Descriptor of_wgmma(u64 bits, const char *text) {
        const u32 mode = (u32)(bits >> 62);
        return {bits, 7ull << 49 | 3ull << 62, mode ? 256u >> mode : 16, text};
    }
    // For tcgen05 (9.7.16.4.1): a constant, a mode of the leading offset, and other codes of swizzles.
    static Descriptor of_tcgen05(u64 bits, const char *text) {
        constexpr u8 ROWS[8] = {16, 0, 128, 0, 64, 0, 32, 0};
        const u32 row = ROWS[bits >> 61];
        if ((bits >> 46 & 7) != 1)
            fault("invalid", "%.120s: bits 46 to 48 of a matrix descriptor are %u, not 1", text, (u32)(bits >> 46 & 7));
        if (bits >> 52 & 1 || bits >> 61 == 1)
            fault("not_executed", "%.120s: an absolute leading offset, or a swizzle of atoms of 32 bytes", text);
        if (!row)
            fault("invalid", "%.120s: the swizzle %u of a matrix descriptor", text, (u32)(bits >> 61));
        return {bits, 7ull << 46 | 7ull << 49 | 7ull << 61, row, text};
    }
    Descriptor(u64 bits, u64 used, u32 row, const char *text) : row(row) {
        if (const u64 left = bits & ~(used | 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32))
            fault("invalid", "%.120s: bits %#llx of a matrix descriptor have no meaning", text,
                  (unsigned long long)left);
        start = (u32)(bits & 0x3fff) << 4, leading = (u32)(bits >> 16 & 0x3fff) << 4;
        stride = (u32)(bits >> 32 & 0x3fff) << 4, base = (u32)(bits >> 49 & 7);
        if (row == 16 && base)
            fault("invalid", "%.120s: a base offset of %u without a swizzle", text, base);
    }
    // The address of 16 bytes of the tile: number `c` of the neighbours along the contiguous axis, line `l` of the
    // other axis (9.7.15.5.1.2.1.3, canonical layouts).
    u32 at(bool across, u32 l, u32 c) const {
        const u32 chunks = row / 16, lines = l / 8, line = l % 8 * row;
        if (row == 16)
            return start + line + (across ? c * stride + lines * leading : c * leading + lines * stride);
        if (across)
            return swizzled(start + line + c % chunks * 16 + c / chunks * leading + lines * stride);
        return swizzled(start + line + c * 16 + lines * stride);
    }
    // Rows of 128 bytes: bits 4 to 6 of an address xor bits 7 to 9 (of 64: 4 and 5 xor 7 and 8; of 32: 4 xor 7). The
    // pattern of 8 rows starts at a multiple of its size, or `base` times 128 bytes later.
    u32 swizzled(u32 address) const { return address ^ (((address >> 7) - base) & (row / 16 - 1)) << 4; }
};

// Elements in 16 bytes of a tile.
u32 chunk_of(Kind kind) {
    return kind == TF32 ? 4 : kind == F16 || kind == BF16 ? 8 : kind == E2M1_PAIR ? 32 : 16;
}
u32 element_bytes(Kind kind) {
    return 16 / chunk_of(kind);
}
// A float of a sign and few bits.
f32 small_float(u32 bits, u32 exponents, u32 fractions) {
    const u32 sign = bits >> (exponents + fractions) & 1, exponent = bits >> fractions & ((1u << exponents) - 1);
    const u32 fraction = bits & ((1u << fractions) - 1), one = exponent ? 1u << fractions : 0;
    const s32 bias = (1 << (exponents - 1)) - 1;
    const f32 value = std::ldexp((f32)(one + fraction), (s32)std::max(exponent, 1u) - bias - (s32)fractions);
    return sign ? -value : value;
}
// Element `i` of the 16 bytes of a tile or the 4 of a register; floats hold all types exactly, integers too.
f32 element(const u8 *from, u32 i, Kind kind) {
    switch (kind) {
    case F16:
        return f32_of_f16(loaded<u16>(from + 2 * i));
    case BF16:
        return f32_of_bf16(loaded<u16>(from + 2 * i));
    case TF32:
        return f32_of(loaded<u32>(from + 4 * i) & 0xffffe000u); // the lower 13 bits are truncated
    case S8:
        return (s8)from[i];
    case U8:
        return from[i];
    case E4M3:
        return NUMBERS.of_e4m3[from[i]];
    case E2M1:
    case E2M1_PAIR:
        return small_float(from[i / 2] >> i % 2 * 4, 2, 1);
    case E2M3:
    case E3M2:
        return small_float(loaded<u16>(from + i * 6 / 8) >> i * 6 % 8, kind == E2M3 ? 2 : 3, kind == E2M3 ? 3 : 2);
    default:
        return NUMBERS.of_e5m2[from[i]];
    }
}

// Factors of a product, by k: the rows of A of a warp, and the columns of B.
constexpr u32 MOST_K = 64;
struct Factors {
    f32 a[MOST_K][16], b[MOST_K][256];
};

// Elements of a tile of `extent` rows of A or columns of B, from row or column `first` to `last`, to `at` and after it.
template <size_t WIDTH>
void gather(const Block &block, const u32 *tile, u32 extent, bool across, Kind kind, bool negated, u32 k, u32 first,
            u32 last, f32 (&to)[MOST_K][WIDTH], u32 at = 0) {
    const u32 each = chunk_of(kind), lines = across ? k : extent, chunks = (across ? extent : k) / each;
    for (u32 l = across ? 0 : first; l < (across ? lines : last); l++)
        for (u32 c = across ? first / each : 0; c < (across ? last / each : chunks); c++) {
            const u8 *from = block.shared + (tile[l * chunks + c] - SHARED_BASE);
            for (u32 i = 0; i < each; i++) {
                const f32 value = element(from, i, kind);
                const u32 line = across ? l : c * each + i, place = (across ? c * each + i : l) - first + at;
                to[line][place] = negated ? -value : value;
            }
        }
}
u32 checked(const Block &block, u32 address, const char *text) {
    if (address < SHARED_BASE || address + 16 > SHARED_BASE + block.shared_bytes)
        fault("out_of_bounds", "%.120s: a tile has 16 bytes of shared memory at %#x", text, address);
    return address;
}
void place_tile(const Block &block, const Descriptor &descriptor, const char *text, u32 extent, bool across, Kind kind,
                u32 k, std::vector<u32> &tiles) {
    const u32 each = chunk_of(kind), lines = across ? k : extent, chunks = (across ? extent : k) / each;
    for (u32 l = 0; l < lines; l++)
        for (u32 c = 0; c < chunks; c++)
            tiles.push_back(checked(block, descriptor.at(across, l, c), text));
}

// ---- Registers

u32 &register_of(const Thread &t, u32 offset) {
    return *(u32 *)(t.registers + offset);
}
// A warp has fragments of 16 rows of A, in the layout of mma (9.7.15.5.1.1).
void gather_registers(const Lanes &lanes, const Product &product, Factors &factors) {
    const u32 each = 4 / element_bytes(product.a), span = 4 * each;
    for (u32 lane = 0; lane < 32; lane++)
        for (u32 i = 0; i < 4; i++) {
            const u32 bits = register_of(*lanes[lane], product.offsets[product.sums + i]);
            u8 bytes[4];
            std::memcpy(bytes, &bits, 4);
            for (u32 part = 0; part < each; part++) {
                const f32 value = element(bytes, part, product.a);
                factors.a[i / 2 * span + lane % 4 * each + part][lane / 4 + 8 * (i % 2)] =
                    product.negated_a ? -value : value;
            }
        }
}

// The sums of a row. In double precision the product of two elements is exact (22 bits at most; integers 16), and so is
// the sum of terms that span 53 bits. Where they span more, bits 2^-52 below the largest term are lost, which no tensor
// core keeps. The exact sum is therefore rounded once, to the type of d: the ISA does not specify order and rounding.
// The compiler vectorises over eight columns.
void sum_row(const Factors &factors, u32 row, u32 n, u32 k, f64 (&sums)[256]) {
    for (u32 column = 0; column < n; column += 8) {
        f64 sum[8] = {};
        for (u32 j = 0; j < k; j++) {
            const f64 a = factors.a[j][row];
            const f32 *b = factors.b[j] + column;
            for (int c = 0; c < 8; c++)
                sum[c] += a * b[c];
        }
        std::copy_n(sum, 8, sums + column);
    }
}
u32 total(const Product &product, f64 sum, u32 before, bool kept) {
    if (product.d == F32)
        return bits_of((f32)(kept ? sum + f32_of(before) : sum));
    const s64 wide = (s64)sum + (kept ? (s64)(s32)before : 0);
    return (u32)(product.saturated ? std::clamp<s64>(wide, INT32_MIN, INT32_MAX) : wide);
}
u32 total_pair(const f64 *sums, u32 before, bool kept) {
    u32 pair = 0;
    for (u32 i = 0; i < 2; i++)
        pair |= (u32)f16_of(kept ? sums[i] + f32_of_f16((u16)(before >> 16 * i)) : sums[i]) << 16 * i;
    return pair;
}

// ---- Execution

// Multiply the rows of a warp; `factors.b` is already loaded.
void multiply_rows(Thread *warp, u32 number, const Issue &issue, Factors &factors) {
    const Product &product = *issue.site->product;
    const bool truncated = warp->block->launch->truncated && product.d == F32, bytes = element_bytes(product.a) == 1;
    Lanes lanes;
    for (u32 lane = 0; lane < 32; lane++)
        lanes[lane] = warp + lane;
    if (product.factors)
        gather_registers(lanes, product, factors);
    else
        gather(*warp->block, issue.tiles.data(), 64, product.across_a, product.a, product.negated_a, product.k,
               16 * number, 16 * number + 16, factors.a);
    f64 sums[256];
    for (u32 row = 0; row < 16; row++) {
        sum_row(factors, row, product.n, product.k, sums);
        for (u32 lane = row % 8 * 4; lane < row % 8 * 4 + 4; lane++)
            for (u32 column = lane % 4 * 2; column < product.n; column += 8) {
                const u32 i = column / 8 * 2 + row / 8; // a pair of elements
                if (product.d == F16) {
                    u32 &pair = register_of(*lanes[lane], product.offsets[i]);
                    pair = total_pair(sums + column, pair, issue.kept);
                    continue;
                }
                for (u32 c = 0; c < 2; c++) {
                    u32 &d = register_of(*lanes[lane], product.offsets[2 * i + c]);
                    if (truncated) {
                        const f32 before = issue.kept ? f32_of(d) : 0;
                        d = bits_of(group_sum(factors.a, row, factors.b, column + c, product.k, bytes, before));
                        continue;
                    }
                    d = total(product, sums[column + c], d, issue.kept);
                }
            }
    }
}
// Multiply the rows of the warps in a mask; `threads` begin with the warpgroup.
void multiply_tiles(Thread *threads, Issue &issue, u32 warps) {
    const Product &product = *issue.site->product;
    static thread_local Factors factors;
    const u32 of_a = product.factors ? 0 : 64 * product.k * element_bytes(product.a) / 16;
    gather(*threads->block, issue.tiles.data() + of_a, product.n, product.across_b, product.b, product.negated_b,
           product.k, 0, product.n, factors.b);
    for (u32 warp = 0; warp < 4; warp++)
        if (warps >> warp & 1)
            multiply_rows(threads + 32 * warp, warp, issue, factors);
    issue.done |= warps;
}

// ---- Instructions

Warpgroup &warpgroup_of(const Thread &t, const Site &site) {
    if ((t.index / 128 + 1) * 128 > t.block->launch->threads)
        fault("divergent", "%.120s: the warpgroup of thread %u has not four warps", site.text, t.index);
    return t.block->warpgroups[t.index / 128];
}
// The instruction that a warp issues. The warps of a warpgroup issue the same instructions with the same descriptors.
Issue &arrive(Warpgroup &group, Lanes &lanes, const Site &site, bool &first) {
    Issue issue{&site};
    const Thread &t = *lanes[0];
    if (site.product) {
        issue.a = site.product->factors ? 0 : t.in[0], issue.b = t.in[1], issue.kept = t.in[2];
        for (u32 lane = 1; lane < 32; lane++)
            for (u32 i = site.product->factors ? 1 : 0; i < 3; i++)
                if (lanes[lane]->in[i] != t.in[i])
                    fault("invalid", "%.120s: lane %u has another %s", site.text, lane,
                          i < 2 ? "matrix descriptor" : "scale-d");
    }
    size_t &place = group.place[t.index / 32 % 4];
    first = place == group.issues.size();
    if (first)
        group.issues.push_back(issue);
    Issue &found = group.issues[place];
    if (found.site != &site)
        fault("divergent", "%.70s: other warps of thread %u's warpgroup are at %.70s", site.text, t.index,
              found.site->text);
    if (found.a != issue.a || found.b != issue.b || found.kept != issue.kept)
        fault("invalid", "%.120s: warp %u has another %s than others of its warpgroup", site.text, t.index / 32,
              found.kept != issue.kept ? "scale-d" : "matrix descriptor");
    place++;
    return found;
}

// A product uses registers of a thread. A wgmma.fence (9.7.15.7.1) must be between an earlier access to them and the
// product, unless the access was by a product of the same shape to its sums.
void take_registers(Thread &t, const Site &site) {
    const Product &product = *site.product;
    if (!t.product_fences)
        fault("unfenced", "%.120s: no wgmma.fence in front of the first product", site.text);
    for (u32 i = 0; i < product.sets; i++) {
        Watched &watched = t.watched[product.set[i]];
        const bool sum = i < product.sets_of_sums;
        if (watched.touched == t.product_fences)
            fault("unfenced", "%.120s: no wgmma.fence behind an access to its registers", site.text);
        const bool alike = watched.product && watched.product->n == product.n && watched.product->k == product.k &&
                           watched.product->d == product.d;
        if (sum ? watched.factors || (watched.sums && !alike) : watched.sums)
            fault("in_flight", "%.120s: another product in flight uses its registers", site.text);
        if (watched.used == t.product_fences && !(sum ? watched.summed && alike : !watched.summed))
            fault("unfenced", "%.120s: no wgmma.fence behind another product with its registers", site.text);
        (sum ? watched.sums : watched.factors)++;
        watched.used = t.product_fences, watched.summed = sum, watched.product = &product;
    }
}
// A fence.proxy.async of the storing thread, or of a lane of this warp, must follow stores of threads (9.7.15.5.2).
// Each lane must have waited for tiles that copies load.
void check_tiles(Lanes &lanes, Block &block, const Issue &issue) {
    const Thread *fenced = lanes[0], *latest = lanes[0];
    for (const Thread *t : lanes) {
        fenced = t->order.fenced > fenced->order.fenced ? t : fenced;
        latest = t->order.acquired < latest->order.acquired ? t : latest;
    }
    for (u32 address : issue.tiles) {
        proxied(*fenced, block, address, 16, ARRIVING | OBJECT, "a product reads");
        each_granule(block, address, 16, [&](const Granule &g) {
            if (g.writer == COPY)
                seen(*latest, address, g, "a product reads");
        });
    }
}
void read_tiles(Block &block, const std::vector<u32> &tiles, int by) {
    for (u32 address : tiles)
        each_granule(block, address, 16, [&](Granule &g) { g.readers += by; });
}
void issue_product(Lanes &lanes, Issue &issue, bool first) {
    const Product &product = *issue.site->product;
    Thread &t = *lanes[0];
    Thread *threads = &t - t.index;
    if (first) {
        const char *const text = issue.site->text;
        if (!product.factors)
            place_tile(*t.block, Descriptor::of_wgmma(issue.a, text), text, 64, product.across_a, product.a, product.k,
                       issue.tiles);
        place_tile(*t.block, Descriptor::of_wgmma(issue.b, text), text, product.n, product.across_b, product.b,
                   product.k, issue.tiles);
        read_tiles(*t.block, issue.tiles, 1);
    }
    check_tiles(lanes, *t.block, issue);
    if (t.causality) {
        u32 &operation = issue.operations[t.index / 32 % 4] = t.causality->issue(t.slot, issue.site->text, true);
        for (u32 address : issue.tiles)
            t.causality->covers_shared(operation, t.block->resident, address - SHARED_BASE, 16, false);
    }
    for (Thread *each : lanes)
        take_registers(*each, *issue.site);
    if (!t.block->launch->late)
        multiply_tiles(threads + t.index / 128 * 128, issue, 1u << t.index / 32 % 4);
}
// A wait_group at `place` waits for the products of all commit_groups before this place but the latest `left`.
size_t awaited(const Warpgroup &group, size_t place, u32 left) {
    u32 groups = 0;
    while (place--)
        if (group.issues[place].site->what == Collective::COMMIT_PRODUCTS && groups++ == left)
            return place;
    return 0;
}
// Whether all warps have issued the products that a warp waits for: a group completes for the whole warpgroup.
bool issued(const Thread *warp, const Site &site) {
    const Warpgroup &group = warpgroup_of(*warp, site);
    const size_t end = awaited(group, group.place[warp->index / 32 % 4], site.detail[0]);
    return *std::min_element(group.place, group.place + 4) >= end;
}
// A product is complete for its whole warpgroup: the key of its end, at a place from 1.
u64 products_key(const Thread &t, u64 place) {
    return key_of(Edge::PRODUCTS, t.block->resident, t.index / 128, place);
}
void await(Warpgroup &group, Lanes &lanes, size_t place, u32 left) {
    Thread &t = *lanes[0];
    const size_t end = awaited(group, place, left);
    for (; group.complete < end; group.complete++) {
        Issue &issue = group.issues[group.complete];
        if (!issue.site->product)
            continue;
        if (issue.done != 15)
            multiply_tiles(&t - t.index % 128, issue, 15 & ~issue.done);
        read_tiles(*t.block, issue.tiles, -1);
        issue.tiles = {};
        for (u32 operation : issue.operations)
            if (t.causality)
                t.causality->publish(operation, products_key(t, 0), products_key(t, 1 + group.complete));
    }
    size_t last = end;
    while (last && !group.issues[last - 1].site->product)
        last--;
    for (Thread *each : lanes)
        if (t.causality) // all have one agent, so that the last product covers the earlier ones
            t.causality->acquire(each->slot, products_key(t, last));
    size_t &released = group.released[t.index / 32 % 4];
    for (; released < end; released++)
        if (const Product *product = group.issues[released].site->product)
            for (Thread *each : lanes)
                for (u32 i = 0; i < product->sets; i++) {
                    Watched &watched = each->watched[product->set[i]];
                    (i < product->sets_of_sums ? watched.sums : watched.factors)--;
                }
}
void in_warpgroup(Lanes &lanes, const Site &site) {
    Warpgroup &group = warpgroup_of(*lanes[0], site);
    const size_t place = group.place[lanes[0]->index / 32 % 4];
    bool first;
    Issue &issue = arrive(group, lanes, site, first);
    if (site.what == Collective::ISSUE_PRODUCT)
        issue_product(lanes, issue, first);
    else if (site.what == Collective::AWAIT_PRODUCTS)
        await(group, lanes, place, site.detail[0]);
    else if (site.what == Collective::FENCE_PRODUCTS)
        for (Thread *t : lanes)
            t->product_fences++;
}
// At the end of a block, the warps of a warpgroup must have issued the same instructions, and waited for all products.
void end_products(const Block &block) {
    for (const Warpgroup &group : block.warpgroups) {
        for (u32 warp = 0; warp < 4; warp++)
            if (group.place[warp] != group.issues.size())
                fault("divergent", "%.120s: warp %u of a warpgroup never came there",
                      group.issues[group.place[warp]].site->text, warp);
        for (size_t i = *std::min_element(group.released, group.released + 4); i < group.issues.size(); i++)
            if (group.issues[i].site->product)
                fault("in_flight", "%.120s: in flight when its block ends", group.issues[i].site->text);
    }
}
} // namespace
