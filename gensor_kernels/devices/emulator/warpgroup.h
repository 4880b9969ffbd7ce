// Models of wgmma.mma_async and setmaxnreg. A warp computes its 16 of the 64 rows: four warps of a warpgroup issue the
// same products, which is compared when the block ends. With late delivery a product reads shared memory and its sums
// when it is waited for, with early delivery when it is issued.
#pragma once
#include "tensor.h"

namespace emulator {

// An operand in shared memory as a matrix descriptor names it: the 128-byte swizzle, the only one that is modelled.
struct SharedOperand {
    u32 start, leading, stride;
    bool transposed;

    SharedOperand(u64 descriptor, bool transposed, const char *file, int line)
        : start((u32)(descriptor & 0x3fff) << 4), leading((u32)(descriptor >> 16 & 0x3fff) << 4),
          stride((u32)(descriptor >> 32 & 0x3fff) << 4), transposed(transposed) {
        if (descriptor >> 62 != 1 || descriptor & 0x3ffec000c000c000ull || start & 0x380)
            invalid("a matrix descriptor that is none of a 128-byte swizzle", file, line);
    }
    // Address of 8 elements: of k from `k` on of one row, or transposed of 8 rows from `row` on.
    u32 chunk(int row, int k) const {
        const u32 at = transposed ? row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128
                                  : row / 8 * stride + row % 8 * 128 + k * 2;
        return swizzled(start + at);
    }
};

typedef float GroupA[16][16];
typedef float GroupB[16][256];
typedef float GroupSums[16][256];

static float widened(const uint16_t *bits, bool bfloat16) {
    u32 word = bfloat16 ? (u32)*bits << 16 : half_to_float_bits(*bits);
    float value;
    memcpy(&value, &word, 4);
    return value;
}

// Elements (row, k) of `rows` rows from `first` on become to[row * row_step + k * k_step].
static void read_operand(const SharedOperand &from, int first, int rows, bool bfloat16, float *to, int row_step,
                         int k_step, int line) {
    for (int row = 0; row < rows; row += from.transposed ? 8 : 1)
        for (int k = 0; k < 16; k += from.transposed ? 1 : 8) {
            uint16_t chunk[8];
            memcpy(chunk, check_shared(from.chunk(first + row, k), 16, "wgmma", line), 16);
            float *at = to + row * row_step + k * k_step;
            for (int i = 0; i < 8; ++i)
                at[i * (from.transposed ? row_step : k_step)] = widened(chunk + i, bfloat16);
        }
}

WIDE_VECTORS void multiply_rows(GroupSums &sums, const GroupA &a, const GroupB &b, int n) {
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k)
            for (int j = 0; j < n; ++j)
                sums[i][j] += a[i][k] * b[k][j];
}

static float *sum_of(const Product &product, int row, int column) {
    return product.d[row % 8 * 4 + column % 8 / 2] + (column / 8 * 4 + row / 8 * 2 + column % 2);
}

static void execute(const Product &product) {
    static GroupA a;
    static GroupB b;
    static GroupSums sums;
    const GroupShape &shape = product.shape;
    const SharedOperand first(product.a, shape.a_transposed, "wgmma", product.line);
    const SharedOperand second(product.b, shape.b_transposed, "wgmma", product.line);
    read_operand(first, current->warp() % 4 * 16, 16, shape.bfloat16, &a[0][0], 16, 1, product.line);
    read_operand(second, 0, shape.n, shape.bfloat16, &b[0][0], 1, 256, product.line);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < shape.n; ++j)
            sums[i][j] = *sum_of(product, i, j);
    multiply_rows(sums, a, b, shape.n);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < shape.n; ++j)
            *sum_of(product, i, j) = sums[i][j];
    ++count(GROUP_MULTIPLIES);
}

// ---- which atoms a product reads

template <class Act>
static void each_atom(const SharedOperand &operand, int first, int rows, const char *file, int line, Act act) {
    for (int row = first; row < first + rows; row += 8)
        for (int k = 0; k < 16; k += 8) {
            const u32 address = operand.chunk(row, k);
            check_shared(address, 16, file, line);
            act(atom_at(address));
        }
}

template <class Act>
static void each_atom_of(const Product &product, const char *file, Act act) {
    const GroupShape &shape = product.shape;
    each_atom(SharedOperand(product.a, shape.a_transposed, file, product.line), current->warp() % 4 * 16, 16, file,
              product.line, act);
    each_atom(SharedOperand(product.b, shape.b_transposed, file, product.line), 0, shape.n, file, product.line, act);
}

static void begin_reading(const Product &product, const char *file) {
    const WarpAsync &own = warp_async();
    each_atom_of(product, file, [&](Atom &atom) {
        if (!atom.filled)
            fault(UNINITIALISED, "the product at %s line %d reads shared memory that no tensor copy has filled", file,
                  product.line);
        if (machine.request->races && (atom.in_flight || own.seen[atom.barrier] <= atom.phase))
            fault(RACE, "the product at %s line %d is not ordered with the tensor copy at line %d", file, product.line,
                  atom.line);
        ++atom.reading, atom.read_line = product.line;
    });
}

static void end_reading(const Product &product) {
    const u32 now = warp_async().known[current->warp()];
    each_atom_of(product, "wgmma", [&](Atom &atom) { --atom.reading, atom.read[current->warp()] = now; });
}

// Ordinary accesses, of what neither a copy nor a product may still touch.
void touch_atoms(u32 address, int bytes, int line) {
    Async &async = current->block->async;
    if (async.atoms.empty())
        return;
    const Clocks &known = async.warps[current->warp()].known;
    for (u32 at = address - SHARED_BASE; at < address - SHARED_BASE + bytes; at += ATOM) {
        Atom &atom = async.atoms[at / ATOM];
        bool ordered = !atom.in_flight && !atom.reading;
        for (size_t w = 0; w < atom.read.size(); ++w)
            ordered = ordered && (w == (size_t)current->warp() || atom.read[w] <= known[w]);
        if (!ordered)
            fault(RACE, "the access at line %d of shared byte %u is not ordered with the %s at line %d", line, at,
                  atom.in_flight ? "tensor copy" : "product", atom.in_flight ? atom.line : atom.read_line);
        atom.touched = line;
    }
}

// ---- the instructions

static bool meet_in_group(Operation operation, Site site) {
    if (async_state().warps.empty())
        invalid("wgmma or setmaxnreg before any mbarrier", site.file, site.line);
    return meet(operation, site, ALL_LANES);
}

void group_fence(const char *file, int line) {
    if (meet_in_group(GROUP_ORDER, {file, line})) {
        warp_async().fenced = true;
        release_warp();
    }
}

void multiply_group(GroupShape shape, float *d, u64 a, u64 b, const char *file, int line) {
    Warp &warp = current_warp();
    const int lane = current->lane();
    warp.d[lane] = d, warp.word[lane] = a ^ b << 1;
    if (!meet_in_group(MULTIPLY_GROUP, {file, line}))
        return;
    WarpAsync &own = warp_async();
    if (!own.fenced)
        fault(RACE, "the product at %s line %d: no wgmma_fence orders its sums with what came before", file, line);
    Product product{shape, a, b, {}, line};
    for (int i = 0; i < WARP; ++i) {
        if (warp.word[i] != (a ^ b << 1))
            invalid("matrix descriptors that differ from lane to lane", file, line);
        product.d[i] = (float *)warp.d[i];
    }
    own.issued.push_back(a), own.issued.push_back(b);
    begin_reading(product, file);
    if (machine.request->early)
        execute(product);
    own.open.push_back(product);
    release_warp();
}

void group_commit(const char *file, int line) {
    if (!meet_in_group(GROUP_ORDER, {file, line}))
        return;
    WarpAsync &own = warp_async();
    own.groups.push_back(own.open);
    own.open.clear(), own.fenced = false;
    release_warp();
}

void group_wait(int groups, const char *file, int line) {
    if (!meet_in_group(GROUP_ORDER, {file, line}))
        return;
    WarpAsync &own = warp_async();
    while ((int)own.groups.size() > groups) {
        for (const Product &product : own.groups.front()) {
            if (!machine.request->early)
                execute(product);
            end_reading(product);
        }
        own.groups.erase(own.groups.begin());
    }
    release_warp();
}

// setmaxnreg: `from` is what the launch gave each thread. Taking waits until the block has that many left over.
void exchange_registers(int from, int to, const char *file, int line) {
    if (!meet_in_group(REGISTERS, {file, line}))
        return;
    Async &async = async_state();
    if (to % 8 || to < 24 || to > 256 || warp_async().registers)
        invalid("a setmaxnreg that is no multiple of 8 from 24 to 256, or a second one", file, line);
    warp_async().registers = to;
    const int more = WARP * (to - from);
    while (more > async.free_registers) {
        async.waiting.push_back(current);
        wait_at(REGISTERS, {file, line});
    }
    async.free_registers -= more;
    std::vector<Thread *> waiting;
    waiting.swap(async.waiting);
    for (Thread *thread : waiting)
        set_ready(*thread->block, thread->warp(), 1u << thread->lane());
    release_warp();
}

// What must be over when a block ends.
static void check_async_end(Block &block) {
    Async &async = block.async;
    if (!async.copies.empty())
        fault(RACE, "the block ends while the tensor copy of line %d is on its way", async.copies[0].line);
    for (size_t w = 0; w < async.warps.size(); ++w) {
        const WarpAsync &own = async.warps[w], &first = async.warps[w / 4 * 4];
        if (!own.open.empty() || !own.groups.empty())
            fault(RACE, "warp %zu ends with products that it has not waited for", w);
        if (own.issued != first.issued || own.registers != first.registers)
            fault(DIVERGENT, "warp %zu did not issue the wgmma and setmaxnreg of its warpgroup", w);
    }
}

} // namespace emulator
