// A model of tcgen05.mma and tcgen05.commit: products that one thread issues, of tiles in shared memory, with sums in
// tensor memory. With late delivery they run when no thread can continue without their commit, with early delivery when
// they are issued. Products of one thread with the same sums, shape and kind run in their order; of others, the second
// one needs to know that the first one is complete (PTX ISA 9.7.16.6).
#pragma once
#include "tensor_memory.h"

namespace emulator {

typedef float TensorA[LANES][32];
typedef float TensorSums[LANES][256];

// ---- the instruction descriptor (PTX ISA, table "Instruction descriptor")

static u32 bits_of(u32 word, int from, int count) {
    return word >> from & ((1u << count) - 1);
}

static GroupElement element_of(GroupElement kind, u32 code, Site site) {
    if (kind <= GROUP_BFLOAT16 && code < 2)
        return code ? GROUP_BFLOAT16 : GROUP_HALF;
    if (kind >= GROUP_E4M3 && code < 2)
        return code ? GROUP_E5M2 : GROUP_E4M3;
    if ((kind == GROUP_TF32 && code == 2) || (kind == GROUP_INT8 && code == 1))
        return kind;
    invalid("an instruction descriptor with an element type that its kind does not have", site);
}

static GroupShape decode(u32 word, GroupElement kind, int blocks, bool kept, Site site) {
    const GroupElement a = element_of(kind, bits_of(word, 7, 3), site),
                       b = element_of(kind, bits_of(word, 10, 3), site);
    const GroupShape shape{(int)bits_of(word, 17, 6) * 8, a,    b,    bits_of(word, 15, 1) != 0,
                           bits_of(word, 16, 1) != 0,     kept, false};
    if (a != kind)
        invalid("an instruction descriptor of another type than that of A", site);
    if (kind <= GROUP_BFLOAT16 && a != b)
        invalid("an instruction descriptor of float16 and bfloat16", site);
    if (bits_of(word, 4, 2) != (kind == GROUP_INT8 ? 2 : 1))
        invalid("an instruction descriptor with sums other than float, of integers other than i32", site);
    if ((shape.a_transposed || shape.b_transposed) && kind > GROUP_BFLOAT16)
        invalid("an instruction descriptor that transposes elements of other than 16 bits", site);
    if ((int)bits_of(word, 24, 5) * 16 != blocks * (int)LANES)
        invalid("an instruction descriptor with rows other than 128 for each block", site);
    if (shape.n < 16 || shape.n > 256 || shape.n % (16 * blocks))
        invalid("an instruction descriptor with columns other than 16 to 256 in steps of 16, of a pair of 32", site);
    if (word & 0xe080604f)
        invalid("an instruction descriptor of a sparse, saturated, negated or shifted product", site);
    return shape;
}

static u64 without_version(u64 descriptor, Site site) {
    if ((descriptor >> 46 & 7) != 1)
        invalid("a descriptor of a tile without the version of tcgen05", site);
    return descriptor ^ 1ull << 46;
}

// ---- what a product reads and writes

template <class Act>
static void each_atom_of(const TensorProduct &product, const Block &block, Act act) {
    const GroupShape &shape = product.shape;
    const SharedOperand a(product.a, shape.a, shape.a_transposed, product.site);
    const SharedOperand b(product.b, shape.b, shape.b_transposed, product.site);
    each_block(block, product.blocks, product.site, [&](Block &each) {
        each_atom(each, a, 0, LANES, product.site, [&](Atom &atom) { act(each, atom); });
        each_atom(each, b, 0, shape.n / product.blocks, product.site, [&](Atom &atom) { act(each, atom); });
    });
}

// Whether a product follows an earlier one of the same columns in order.
static bool is_pipelined(const TensorProduct &first, const TensorProduct &second, bool same_warp) {
    return same_warp && first.thread == second.thread && first.d == second.d && first.shape.n == second.shape.n &&
           first.shape.a == second.shape.a && first.shape.b == second.shape.b;
}

static void claim_columns(Block &block, const TensorProduct &product) {
    const Site site = product.site;
    const int place = own_place();
    check_columns(block, product.d, (u32)product.shape.n, product.shape.kept, "product", site);
    for (u32 i = product.d; i < product.d + product.shape.n; ++i) {
        TensorColumn &column = block.async.tensor.columns[i];
        const bool read = is_ordered(*current, column.read);
        if (machine.request->races && (!read || !(is_complete(current->ordered, block, column) ||
                                                  is_pipelined(column.product, product, column.place == place))))
            fault(RACE, "the product at %s line %d of column %u of tensor memory is not ordered with the %s at line %d",
                  site.file, site.line, i, read ? "product" : "load",
                  read ? column.product.site.line : column.read_line);
        column.written = true, column.place = place, column.product = product;
        column.read.assign(column.read.size(), 0);
    }
}

// ---- execution

// Sums are those of matrix.h: blocks of four along k, with the bits that float has.
WIDE_VECTORS void multiply_tensor_rows(TensorSums &sums, const TensorA &a, const GroupB &b, int n, int depth) {
    for (u32 i = 0; i < LANES; ++i)
        for (int k = 0; k < depth; k += BLOCK)
            for (int j = 0; j < n; j += 4) {
                Floats sum, products[BLOCK];
                memcpy(&sum, &sums[i][j], sizeof sum);
                for (int t = 0; t < BLOCK; ++t) {
                    memcpy(&products[t], &b[k + t][j], sizeof sum);
                    products[t] *= a[i][k + t];
                }
                add_block(sum, products);
                memcpy(&sums[i][j], &sum, sizeof sum);
            }
}

static void execute(Block &block, const TensorProduct &product) {
    static TensorA a;
    static GroupB b;
    static TensorSums sums;
    const GroupShape &shape = product.shape;
    const bool integers = shape.a == GROUP_INT8;
    const SharedOperand first(product.a, shape.a, shape.a_transposed, product.site);
    const SharedOperand second(product.b, shape.b, shape.b_transposed, product.site);
    const int columns = shape.n / product.blocks, depth = 32 / size_of(shape.a);
    int done = 0;
    each_block(block, product.blocks, product.site,
               [&](Block &each) { read_operand(each, second, 0, columns, shape.b, &b[0][columns * done++], 1, 256); });
    each_block(block, product.blocks, product.site, [&](Block &each) {
        read_operand(each, first, 0, LANES, shape.a, &a[0][0], 32, 1);
        memset(sums, 0, sizeof sums);
        for (u32 i = 0; i < LANES && shape.kept && !integers; ++i)
            memcpy(sums[i], &tensor_word(each, i, product.d), shape.n * 4);
        multiply_tensor_rows(sums, a, b, shape.n, depth);
        for (u32 i = 0; i < LANES; ++i) {
            u32 *const to = &tensor_word(each, i, product.d);
            if (!integers)
                memcpy(to, sums[i], shape.n * 4);
            for (int j = 0; j < shape.n && integers; ++j) // 32 products fit a float; int32 sums wrap around
                to[j] = (shape.kept ? to[j] : 0) + (u32)(int)sums[i][j];
        }
        count(GROUP_MULTIPLIES) += LANES / 16;
    });
}

// ---- the instructions

void tensor_multiply(int blocks, GroupElement kind, u32 d, u64 a, u64 b, u32 instruction, bool kept, Site site) {
    tick();
    use_blocks(blocks, site);
    Block &block = *current->block;
    prepare_async(block);
    if (blocks == 2 && block.index % 2)
        invalid("a product of a pair by its second block", site);
    if (d >> 16)
        invalid("a product of tensor memory from another lane than 0 on", site);
    WarpAsync &own = warp_async();
    const TensorProduct product{decode(instruction, kind, blocks, kept, site),
                                d,
                                without_version(a, site),
                                without_version(b, site),
                                blocks,
                                current->index,
                                ++own.multiplied,
                                false,
                                site};
    each_atom_of(product, block, [&](Block &each, Atom &atom) { begin_reading(each, atom, site); });
    each_block(block, blocks, site, [&](Block &each) { claim_columns(each, product); });
    if (machine.request->early)
        execute(block, product);
    own.products.push_back(product);
}

// All earlier products of the thread are complete: they have read their tiles, and the mbarrier publishes up to which
// number the warp has no unfinished products.
static void complete(Block &block, int warp, size_t which) {
    WarpAsync &own = block.async.warps[warp];
    const TensorCommit commit = own.commits[which];
    own.commits.erase(own.commits.begin() + (long)which);
    const int place = places(block) + place_of(block, warp);
    for (TensorProduct &each : own.products) {
        if (each.thread != commit.thread || each.number > commit.number || each.done)
            continue;
        if (!machine.request->early)
            execute(block, each);
        each_atom_of(each, block, [&](Block &, Atom &atom) { --atom.reading, atom.read[place] = each.number; });
        each.done = true;
    }
    while (!own.products.empty() && own.products[0].done)
        own.completed = own.products[0].number, own.products.erase(own.products.begin());
    each_block(block, commit.blocks, commit.site, [&](Block &each) {
        for (MBarrier &barrier : each.async.barriers)
            if (barrier.address == commit.barrier) {
                barrier.gathered[place] = own.completed;
                count_arrival(barrier, commit.site);
            }
    });
}

void tensor_commit(int blocks, u32 barrier, Site site) {
    tick();
    use_blocks(blocks, site);
    Block &block = *current->block;
    prepare_async(block);
    each_block(block, blocks, site, [&](Block &each) { find_mbarrier(each.async, barrier, site); });
    tensor_fence_before();
    WarpAsync &own = warp_async();
    own.commits.push_back({barrier, blocks, current->index, own.multiplied, site});
    if (machine.request->early)
        complete(block, current->warp(), own.commits.size() - 1);
}

// Lets the first commit of a warp, and the products before it, complete.
static bool commit_one() {
    for (Block &block : machine.blocks)
        for (size_t w = 0; w < block.async.warps.size(); ++w) {
            if (block.async.warps[w].commits.empty())
                continue;
            Thread *before = current;
            current = before ? before : &block.threads[0]; // a fault needs a thread
            complete(block, (int)w, 0);
            current = before;
            return true;
        }
    return false;
}

// Called where no thread can continue: completes a copy or commit on its way. False where there is none.
static bool complete_one() {
    if (machine.tensor_blocks && machine.request->order == RANDOM && next_random() & 1)
        return commit_one() || deliver_one();
    return deliver_one() || commit_one();
}

static void check_tensor_end(Block &block) {
    for (const std::pair<u32, u32> &each : block.async.tensor.spans)
        fault(INVALID, "the block ends without having freed the %u columns of tensor memory from column %u on",
              each.second, each.first);
    for (const WarpAsync &warp : block.async.warps) {
        for (const TensorCommit &each : warp.commits)
            fault(RACE, "the block ends while the commit of line %d is on its way", each.site.line);
        for (const TensorLoad &each : warp.loads)
            if (!each.waited)
                fault(RACE, "the block ends while the load of line %d is on its way", each.site.line);
    }
}

} // namespace emulator
