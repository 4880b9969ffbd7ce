// Models of wgmma.mma_async and setmaxnreg. The four warps of a warpgroup issue the same products; this is checked when
// the block ends. With late delivery a product reads shared memory and its sums when it is waited for, with early
// delivery when it is issued.
#pragma once
#include "tensor.h"

namespace emulator {

// ---- the computation of one product: each warp computes 16 of the 64 rows

// An operand in shared memory that a matrix descriptor describes. Only the 128-byte swizzle is modelled.
struct SharedOperand {
    u32 start, leading, stride;
    int element;
    bool transposed;

    SharedOperand(u64 descriptor, GroupElement type, bool transposed, Site site)
        : start((u32)(descriptor & 0x3fff) << 4), leading((u32)(descriptor >> 16 & 0x3fff) << 4),
          stride((u32)(descriptor >> 32 & 0x3fff) << 4), element(size_of(type)), transposed(transposed) {
        if (descriptor >> 62 != 1 || descriptor & 0x3fffc000c000c000ull || start & 0x380)
            invalid("a matrix descriptor that is none of a 128-byte swizzle", site);
    }
    // Address of 16 bytes: one row from `k` on or, transposed, 8 rows from `row` on.
    u32 chunk(int row, int k) const {
        const u32 at = transposed ? row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128
                                  : row / 8 * stride + row % 8 * 128 + k * element;
        return swizzled(start + at);
    }
};

// Writes elements (row, k) of `rows` rows from `first` on to to[row * row_step + k * k_step].
static void read_operand(const Block &block, const SharedOperand &from, int first, int rows, GroupElement type,
                         float *to, int row_step, int k_step) {
    const int each = 16 / from.element;
    for (int row = 0; row < rows; row += from.transposed ? each : 1)
        for (int k = 0; k < 2 * each; k += from.transposed ? 1 : each) {
            unsigned char chunk[16];
            memcpy(chunk, block.shared + (from.chunk(first + row, k) - SHARED_BASE), 16);
            const int packed = type == GROUP_E2M1 ? 2 : 1; // in a byte
            float *at = to + row * row_step + k * packed * k_step;
            for (int i = 0; i < each * packed; ++i) {
                const unsigned char half = (unsigned char)(chunk[i / 2] >> i % 2 * 4);
                at[i * (from.transposed ? row_step : k_step)] =
                    packed == 2 ? widened(&half, type) : widened(chunk + i * from.element, type);
            }
        }
}

// A in registers: of `each` elements in a word, register i of lane 4 * g + t holds k from each * (4 * (i / 2) + t) on,
// of row g + 8 * (i % 2).
static void read_held(const Product &product, GroupA &to) {
    const int element = size_of(product.shape.a), each = 4 / element;
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            unsigned char bytes[4]; // the order of bytes in memory does not depend on the host's
            for (int byte = 0; byte < 4; ++byte)
                bytes[byte] = (unsigned char)(product.held[lane][i] >> 8 * byte);
            for (int of = 0; of < each; ++of)
                to[lane / 4 + i % 2 * 8][each * (i / 2 * 4 + lane % 4) + of] =
                    widened(bytes + of * element, product.shape.a);
        }
}

WIDE_VECTORS void multiply_rows(GroupSums &sums, const GroupA &a, const GroupB &b, int n, int depth) {
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < depth; ++k)
            for (int j = 0; j < n; ++j)
                sums[i][j] += a[i][k] * b[k][j];
}

static u32 *sum_of(const Product &product, int row, int column) {
    return product.d[row % 8 * 4 + column % 8 / 2] + (column / 8 * 4 + row / 8 * 2 + column % 2);
}

static void execute(const Product &product) {
    static GroupA a;
    static GroupB b;
    static GroupSums sums;
    const GroupShape &shape = product.shape;
    const SharedOperand second(product.b, shape.b, shape.b_transposed, product.site);
    if (shape.held) {
        read_held(product, a);
    } else {
        const SharedOperand first(product.a, shape.a, shape.a_transposed, product.site);
        read_operand(*current->block, first, current->warp() % 4 * 16, 16, shape.a, &a[0][0], 32, 1);
    }
    read_operand(*current->block, second, 0, shape.n, shape.b, &b[0][0], 1, 256);
    const bool integers = shape.a == GROUP_INT8;
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < shape.n; ++j) {
            const u32 before = shape.kept && !integers ? *sum_of(product, i, j) : 0;
            memcpy(&sums[i][j], &before, 4);
        }
    if (shape.a >= GROUP_E4M3)
        multiply_cut_rows(sums, a, b, shape.n);
    else
        multiply_rows(sums, a, b, shape.n, 32 / size_of(shape.a));
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < shape.n; ++j) {
            u32 *const sum = sum_of(product, i, j), before = shape.kept ? *sum : 0;
            if (integers) // 32 products fit a float; int32 sums wrap around
                *sum = before + (u32)(int)sums[i][j];
            else
                memcpy(sum, &sums[i][j], 4);
        }
    ++count(GROUP_MULTIPLIES);
}

// ---- the atoms that a product reads

template <class Act>
static void each_atom(Block &block, const SharedOperand &operand, int first, int rows, Site site, Act act) {
    for (int row = first; row < first + rows; row += 8)
        for (int half = 0; half < 2; ++half) {
            const u32 address = operand.chunk(row, half * 16 / operand.element);
            check_shared(address, 16, site);
            act(atom_at(block, address));
        }
}

template <class Act>
static void each_atom_of(const Product &product, Act act) {
    const GroupShape &shape = product.shape;
    if (!shape.held) {
        const SharedOperand a(product.a, shape.a, shape.a_transposed, product.site);
        each_atom(*current->block, a, current->warp() % 4 * 16, 16, product.site, act);
    }
    const SharedOperand b(product.b, shape.b, shape.b_transposed, product.site);
    each_atom(*current->block, b, 0, shape.n, product.site, act);
}

// Threads may store to memory that a product reads, after a copy or in its place: then they fence (PTX ISA
// 9.7.15.7.1), and barriers or mbarriers order them before the product.
static void check_written(const Block &block, const Atom &atom, int line) {
    if (!machine.request->races || !atom.touched)
        return;
    if (atom.unfenced)
        fault(RACE, "the product at line %d reads what threads wrote without a proxy fence", line);
    if (&block != current->block && !all_known(atom.wrote))
        fault(RACE, "the product at line %d is not ordered with the stores at line %d by the other block of the pair",
              line, atom.touched);
    if (&block != current->block)
        return;
    const Shadow &shadow = block.shadow;
    const size_t first = (&atom - block.async.atoms.data()) * (ATOM >> shadow.log2), cells = ATOM >> shadow.log2;
    const Clocks &known = warp_async().known;
    for (size_t i = first; i < first + cells && i < shadow.cells.size(); ++i) {
        const Cell &cell = shadow.cells[i];
        if (!cell.written || write_ordered(cell, now(), true))
            continue;
        const int writer = place_of(*current->block, cell.writer / WARP);
        if (atom.wrote.empty() || cell.in_flight || atom.wrote[writer] > known[writer])
            report_race(cell, (u32)(i << shadow.log2), "the product", false, line);
    }
}

// Whether the current warp has waited for the copy that filled an atom.
static bool has_seen(const Atom &atom) {
    return !atom.in_flight && atom.home == current->block->index % machine.request->cluster &&
           warp_async().seen[atom.barrier] > atom.phase;
}

// A product, of the current warp, will read an atom.
static void begin_reading(const Block &block, Atom &atom, Site site) {
    if (!atom.filled && atom.wrote.empty() && machine.request->races)
        fault(UNINITIALISED, "the product at %s line %d reads shared memory that no tensor copy has filled", site.file,
              site.line);
    if (machine.request->races && atom.filled && !has_seen(atom))
        fault(RACE, "the product at %s line %d is not ordered with the tensor copy at line %d", site.file, site.line,
              atom.line);
    check_written(block, atom, site.line);
    if (atom.read.empty())
        atom.read = nothing_known(block);
    ++atom.reading, atom.read_line = site.line;
}

static void end_reading(const Product &product) {
    const u32 now = warp_async().known[own_place()];
    each_atom_of(product, [&](Atom &atom) { --atom.reading, atom.read[own_place()] = now; });
}

// PTX ISA 9.7.13.15: only operations of mbarriers access an initialised mbarrier.
static void check_barriers(u32 address, int bytes, int line) {
    for (const MBarrier &each : async_state().barriers)
        if (address < each.address + 8 && each.address < address + bytes)
            fault(INVALID, "the access at line %d of shared byte %u touches the mbarrier of line %d", line,
                  address - SHARED_BASE, each.line);
}

// Whether an ordinary load, within one atom, reads data of a tensor copy: then its warp must have waited for the copy,
// and the next copy must be ordered after the load.
bool reads_copy(u32 address, bool warp_wide, int line) {
    Async &async = current->block->async;
    if (async.atoms.empty())
        return false;
    Atom &atom = atom_at(*current->block, address);
    if (!atom.filled || atom.touched)
        return false;
    if (machine.request->races && !has_seen(atom))
        fault(RACE, "the load at line %d of shared byte %u is not ordered with the tensor copy at line %d", line,
              address - SHARED_BASE, atom.line);
    atom.read[own_place()] = UNRELEASED, atom.read_line = line;
    note_access(atom, false, warp_wide ? ~0u : 1u << current->lane());
    return true;
}

// Ordinary accesses, of memory that no copy and no product may still access.
void touch_atoms(u32 address, int bytes, bool loads, int line) {
    Async &async = current->block->async;
    if (async.atoms.empty())
        return;
    const Clocks &known = async.warps[current->warp()].known;
    for (u32 at = address - SHARED_BASE; at < address - SHARED_BASE + bytes; at += ATOM) {
        Atom &atom = async.atoms[at / ATOM];
        bool ordered = !atom.in_flight && !atom.reading;
        for (size_t w = 0; w < atom.read.size(); ++w)
            ordered = ordered && (w == (size_t)own_place() || atom.read[w] <= known[w]);
        if (!ordered)
            fault(RACE, "the access at line %d of shared byte %u is not ordered with the %s at line %d", line, at,
                  atom.in_flight ? "tensor copy" : "product", atom.in_flight ? atom.line : atom.read_line);
        atom.touched = line, atom.loaded |= loads;
        if (atom.barriers)
            check_barriers(address, bytes, line);
    }
}

// ---- the instructions

// True for the last lane. `what` must equal the instruction that the other warps of the warpgroup issue there.
static bool meet_in_group(Operation operation, Site site, int what = 0) {
    if (async_state().warps.empty())
        invalid("wgmma or setmaxnreg before any mbarrier", site);
    if (!meet(operation, site, ALL_LANES))
        return false;
    if ((current->warp() | 3) >= (int)current->block->warps.size())
        fault(DIVERGENT, "%s at %s line %d in a block without four warps to this warpgroup", operation_name(operation),
              site.file, site.line);
    warp_async().issued.push_back((u64)site.line << 32 | (u32)what);
    return true;
}

void wgmma_fence(Site site) {
    if (meet_in_group(GROUP_ORDER, site, -1)) {
        warp_async().fenced = true;
        release_warp();
    }
}

// PTX ISA 9.7.15.7.1: without a wait, only products of one shape may follow each other on the same sums.
static void check_shape(const std::vector<Product> &earlier, const Product &product) {
    for (const Product &before : earlier)
        if (before.d[0] == product.d[0] && (before.shape.n != product.shape.n || before.shape.a != product.shape.a))
            fault(RACE,
                  "the product at %s line %d has the sums of one of another shape at line %d, which is on its way",
                  product.site.file, product.site.line, before.site.line);
}

void multiply_group(GroupShape shape, void *d, u64 a, const u32 *held, u64 b, Site site) {
    Warp &warp = current_warp();
    const int lane = current->lane();
    warp.d[lane] = d, warp.a[lane] = held, warp.word[lane] = a ^ b << 1;
    if (!meet_in_group(MULTIPLY_GROUP, site, shape.n << 2 | shape.held << 1 | shape.kept))
        return;
    WarpAsync &own = warp_async();
    if (!own.fenced)
        fault(RACE, "the product at %s line %d: no wgmma_fence orders its sums with what came before", site.file,
              site.line);
    Product product{shape, a, b, {}, {}, site};
    for (int i = 0; i < WARP; ++i) {
        if (warp.word[i] != (a ^ b << 1))
            invalid("matrix descriptors that differ from lane to lane", site);
        product.d[i] = (u32 *)warp.d[i], product.held[i] = warp.a[i];
        if (shape.held)
            memcpy(product.factors[i], warp.a[i], sizeof product.factors[i]);
    }
    own.issued.push_back(a), own.issued.push_back(b);
    check_shape(own.open, product);
    for (const std::vector<Product> &group : own.groups)
        check_shape(group, product);
    each_atom_of(product, [&](Atom &atom) { begin_reading(*current->block, atom, site); });
    if (machine.request->early)
        execute(product);
    own.open.push_back(product);
    release_warp();
}

// PTX ISA 9.7.15.5.2: registers of A are not accessed before the product is complete.
static void check_held(const Product &product) {
    for (int i = 0; i < WARP && product.shape.held; ++i)
        if (memcmp(product.factors[i], product.held[i], sizeof product.factors[i]))
            fault(RACE, "the product at %s line %d has registers of A that changed before it was waited for",
                  product.site.file, product.site.line);
}

void wgmma_commit(Site site) {
    if (!meet_in_group(GROUP_ORDER, site, -2))
        return;
    WarpAsync &own = warp_async();
    own.groups.push_back(own.open);
    own.open.clear(), own.fenced = false;
    release_warp();
}

void group_wait(int groups, Site site) {
    if (!meet_in_group(GROUP_ORDER, site, groups))
        return;
    WarpAsync &own = warp_async();
    while ((int)own.groups.size() > groups) {
        for (const Product &product : own.groups.front()) {
            check_held(product);
            if (!machine.request->early)
                execute(product);
            end_reading(product);
        }
        own.groups.erase(own.groups.begin());
    }
    release_warp();
}

// setmaxnreg: `from` is the number of registers per thread at launch. Taking waits until the block has enough free
// registers.
void exchange_registers(int from, int to, Site site) {
    if (!meet_in_group(REGISTERS, site, to))
        return;
    Async &async = async_state();
    if (from * machine.request->block > 65536 || (async.launched_registers && async.launched_registers != from))
        invalid("a setmaxnreg from more registers than a launch can give, or from others than before", site);
    async.launched_registers = from;
    if (to % 8 || to < 24 || to > 256 || warp_async().registers)
        invalid("a setmaxnreg that is no multiple of 8 from 24 to 256, or a second one", site);
    warp_async().registers = to;
    const int more = WARP * (to - from);
    while (more > async.free_registers) {
        async.waiting.push_back(current);
        wait_at(REGISTERS, site);
    }
    async.free_registers -= more;
    wake(async.waiting);
    release_warp();
}

// Checks that all asynchronous operations of a block are complete at its end.
static void check_async_end(Block &block) {
    Async &async = block.async;
    if (!async.copies.empty())
        fault(RACE, "the block ends while the tensor copy of line %d is on its way", async.copies[0].site.line);
    for (size_t w = 0; w < async.warps.size(); ++w) {
        const WarpAsync &own = async.warps[w], &first = async.warps[w / 4 * 4];
        if (!own.open.empty() || !own.groups.empty())
            fault(RACE, "warp %zu ends with products that it has not waited for", w);
        if (own.issued != first.issued || own.registers != first.registers)
            fault(DIVERGENT, "warp %zu did not issue the wgmma and setmaxnreg of its warpgroup", w);
    }
}

} // namespace emulator
