// Models of wgmma.mma_async and setmaxnreg. Four warps of a warpgroup issue the same products, which is compared when
// the block ends. With late delivery a product reads shared memory and its sums when it is waited for, with early
// delivery when it is issued.
#pragma once
#include "group_product.h"

namespace emulator {

// ---- which atoms a product reads

template <class Act>
static void each_atom(const SharedOperand &operand, int first, int rows, const char *file, int line, Act act) {
    for (int row = first; row < first + rows; row += 8)
        for (int half = 0; half < 2; ++half) {
            const u32 address = operand.chunk(row, half * 16 / operand.element);
            check_shared(address, 16, file, line);
            act(atom_at(*current->block, address));
        }
}

template <class Act>
static void each_atom_of(const Product &product, const char *file, Act act) {
    const GroupShape &shape = product.shape;
    const SharedOperand a(product.a, shape.a, shape.a_transposed, file, product.line);
    const SharedOperand b(product.b, shape.b, shape.b_transposed, file, product.line);
    each_atom(a, current->warp() % 4 * 16, 16, file, product.line, act);
    each_atom(b, 0, shape.n, file, product.line, act);
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
    const u32 now = warp_async().known[own_place()];
    each_atom_of(product, "wgmma", [&](Atom &atom) { --atom.reading, atom.read[own_place()] = now; });
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
            ordered = ordered && (w == (size_t)own_place() || atom.read[w] <= known[w]);
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

void multiply_group(GroupShape shape, void *d, u64 a, u64 b, const char *file, int line) {
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
        product.d[i] = (u32 *)warp.d[i];
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
