// A model of tcgen05.mma, tcgen05.cp and tcgen05.commit: products that one thread issues, of tiles in shared memory,
// with sums in tensor memory, where scales may be too. With late delivery they run when no thread can continue without
// their commit, with early delivery when they are issued. Products of one thread with the same sums, shape and kind run
// in their order, and copies of scales among them; of others, the second one needs to know that the first one is
// complete (PTX ISA 9.7.16.6).
#pragma once
#include "tensor_memory.h"

namespace emulator {

typedef float TensorA[LANES][64];
typedef float TensorB[64][256];
typedef float TensorSums[LANES][256];

// ---- the instruction descriptor (PTX ISA, tables "Instruction descriptor format")

static u32 bits_of(u32 word, int from, int count) {
    return word >> from & ((1u << count) - 1);
}

static GroupElement element_of(GroupElement kind, u32 code, Site site) {
    if (kind <= GROUP_BFLOAT16 && code < 2)
        return code ? GROUP_BFLOAT16 : GROUP_HALF;
    if ((kind == GROUP_E4M3 || kind == GROUP_E5M2) && code < 2)
        return code ? GROUP_E5M2 : GROUP_E4M3;
    if ((kind == GROUP_TF32 && code == 2) || ((kind == GROUP_INT8 || kind == GROUP_E2M1) && code == 1))
        return kind;
    invalid("an instruction descriptor with an element type that its kind does not have", site);
}

// The bits that only products with scales have, or only others.
static void decode_scales(TensorProduct &product, u32 word) {
    const int each = product.scales.each;
    product.a_byte = (int)bits_of(word, 29, 2), product.b_byte = (int)bits_of(word, 4, 2);
    if (bits_of(word, 23, 1) != (each < 4) || word >> 31 || bits_of(word, 15, 2))
        invalid("an instruction descriptor with scales of the other type, another k, or a transpose", product.site);
    if (product.a_byte % each || product.b_byte % each)
        invalid("an instruction descriptor with scales from a byte on that is not theirs", product.site);
}
static void decode_sums(GroupElement kind, u32 word, Site site) {
    if (bits_of(word, 4, 2) != (kind == GROUP_INT8 ? 2 : 1))
        invalid("an instruction descriptor with sums other than float, of integers other than i32", site);
    if (bits_of(word, 15, 2) && kind > GROUP_BFLOAT16)
        invalid("an instruction descriptor that transposes elements of other than 16 bits", site);
    if (word & 0xe0800000)
        invalid("an instruction descriptor with reserved bits or a shift", site);
}

static void decode(TensorProduct &product, u32 word, GroupElement kind) {
    const Site site = product.site;
    GroupShape &shape = product.shape;
    shape.a = element_of(kind, bits_of(word, 7, 3), site), shape.b = element_of(kind, bits_of(word, 10, 3), site);
    shape.n = (int)bits_of(word, 17, 6) * 8;
    shape.a_transposed = bits_of(word, 15, 1) != 0, shape.b_transposed = bits_of(word, 16, 1) != 0;
    if ((shape.a != kind && !product.scales.each) || (kind <= GROUP_BFLOAT16 && shape.a != shape.b))
        invalid("an instruction descriptor of another type than that of A, or of two of 16 bits", site);
    if (bits_of(word, 24, 5) * 16 != product.blocks * LANES)
        invalid("an instruction descriptor with rows other than 128 for each block", site);
    if (shape.n < 16 || shape.n > 256 || shape.n % (16 * product.blocks))
        invalid("an instruction descriptor with columns other than 16 to 256 in steps of 16, of a pair of 32", site);
    if (word & 0x604f)
        invalid("an instruction descriptor of a sparse, saturated or negated product", site);
    if (product.held && shape.a_transposed)
        invalid("an instruction descriptor that transposes A in tensor memory", site);
    if (product.scales.each)
        decode_scales(product, word);
    else
        decode_sums(kind, word, site);
}

static u64 without_version(u64 descriptor, Site site) {
    if ((descriptor >> 46 & 7) != 1)
        invalid("a descriptor of a tile without the version of tcgen05", site);
    return descriptor ^ 1ull << 46;
}

// ---- what a product reads and writes

// The address of a row of 16 bytes that a copy of scales reads: without a swizzle, or with that of tiles.
static u32 row_of_scales(const TensorProduct &copy, u32 row) {
    if (copy.a >> 61)
        return SharedOperand(copy.a, GROUP_E4M3, false, copy.site).chunk((int)row, 0);
    return ((u32)(copy.a & 0x3fff) << 4) + row / 8 * ((u32)(copy.a >> 32 & 0x3fff) << 4) + row % 8 * 16;
}

static void check_filled(Block &block, u32 row, Site site) {
    check_shared(row, 16, site);
    if (machine.request->races && !atom_at(block, row).filled &&
        !block.shadow.cells[(row - SHARED_BASE) >> block.shadow.log2].written)
        fault(UNINITIALISED, "the copy at %s line %d reads scales that nothing has stored", site.file, site.line);
}

template <class Act>
static void each_atom_of(const TensorProduct &product, const Block &block, Act act) {
    const Site site = product.site;
    if (product.copies)
        return each_block(block, product.blocks, site, [&](Block &each) {
            for (u32 row = 0; row < WARP; row += row % 8 ? 1 : 7) { // the first and the last of every eight
                check_filled(each, row_of_scales(product, row), site);
                act(each, atom_at(each, row_of_scales(product, row)));
            }
        });
    const GroupShape &shape = product.shape;
    const SharedOperand a(product.held ? product.b : product.a, shape.a, shape.a_transposed, site),
        b(product.b, shape.b, shape.b_transposed, site);
    each_block(block, product.blocks, site, [&](Block &each) {
        if (!product.held)
            each_atom(each, a, 0, LANES, site, [&](Atom &atom) { act(each, atom); });
        each_atom(each, b, 0, shape.n / product.blocks, site, [&](Atom &atom) { act(each, atom); });
    });
}

// Whether a product, or a copy of scales, runs after an earlier one of these columns: of this thread in order.
static bool is_after(const TensorProduct &product, const Block &block, const TensorColumn &column) {
    const TensorProduct &first = column.product;
    const bool same = first.d == product.d && first.shape.n == product.shape.n && first.shape.a == product.shape.a &&
                      first.shape.b == product.shape.b && first.scales.each == product.scales.each;
    return is_complete(current->ordered, block, column) ||
           (column.place == own_place() && first.thread == current->index && (first.copies || product.copies || same));
}

static void claim_columns(Block &block, const TensorProduct &product, u32 columns) {
    const Site site = product.site;
    const int place = own_place();
    check_columns(block, product.d, columns, product.shape.kept ? EVERY_PIECE : 0, "product", site);
    for (u32 i = product.d; i < product.d + columns; ++i) {
        TensorColumn &column = block.async.tensor.columns[i];
        // A copy also runs after this thread's products with the scales that it overwrites.
        const int own = product.copies && column.reader == current->index ? places(block) + place : -1;
        const bool read = is_ordered(*current, column.read, own), stored = is_ordered(*current, column.stored);
        if (machine.request->races && (!read || !stored || !is_after(product, block, column)))
            fault(RACE, "the %s at %s line %d of column %u of tensor memory is not ordered with the %s at line %d",
                  product.copies ? "copy of scales" : "product", site.file, site.line, i,
                  !read     ? "read"
                  : !stored ? "store"
                            : "product or copy",
                  !read     ? column.read_line
                  : !stored ? column.stored_line
                            : column.product.site.line);
        column.written = EVERY_PIECE, column.place = place, column.product = product;
        column.read.assign(column.read.size(), 0), column.stored.assign(column.stored.size(), 0);
    }
}

// Rows of A have 32 bytes, the words of eight columns.
static void claim_held(Block &block, const TensorProduct &product) {
    const Site site = product.site;
    check_columns(block, (u32)product.a, 8, EVERY_PIECE, "product", site);
    for (u32 i = (u32)product.a; i < product.a + 8; ++i) {
        TensorColumn &column = block.async.tensor.columns[i];
        const bool stored = is_ordered(*current, column.stored);
        if (machine.request->races && (!stored || !is_complete(current->ordered, block, column)))
            fault(RACE,
                  "the product at %s line %d reads column %u of tensor memory before the %s at line %d is ordered",
                  site.file, site.line, i, stored ? "product or copy" : "store",
                  stored ? column.product.site.line : column.stored_line);
        column.read[places(block) + own_place()] = product.number, column.read_line = site.line;
    }
}

static void claim_scales(Block &block, const TensorProduct &product, u32 from, u32 columns) {
    const Site site = product.site;
    check_columns(block, from, columns, EVERY_PIECE, "product", site);
    for (u32 i = from; i < from + columns; ++i) {
        TensorColumn &column = block.async.tensor.columns[i];
        if (!column.product.copies)
            fault(INVALID, "the product at %s line %d has sums of line %d as scales", site.file, site.line,
                  column.product.site.line);
        if (machine.request->races && !is_after(product, block, column))
            fault(RACE, "the product at %s line %d is not ordered with the copy of its scales at line %d", site.file,
                  site.line, column.product.site.line);
        column.read[places(block) + own_place()] = product.number;
        column.reader = current->index, column.read_line = site.line;
    }
}

// ---- execution

// Those of rows of A and of columns of B.
struct Scales {
    float a[LANES][4], b[4][256];
};

// e8m0, a power of two or NaN; or e4m3 without a sign.
static float scale_at(Block &block, u32 lane, u32 column, int byte, bool e8m0) {
    const unsigned char bits = (unsigned char)(tensor_word(block, lane, column) >> 8 * byte), size = bits & 0x7f;
    if (e8m0)
        return bits == 255 ? __builtin_nanf("") : __builtin_ldexpf(1, bits - 127);
    return widened(&size, GROUP_E4M3);
}

static void read_scales(Block &block, const TensorProduct &product, Scales &to) {
    const TensorScales &from = product.scales;
    for (int i = 0; i < from.each; ++i) {
        for (u32 row = 0; row < LANES; ++row)
            to.a[row][i] = scale_at(block, row, from.a + row / 32, product.a_byte + i, from.each < 4);
        for (u32 j = 0; j < (u32)product.shape.n; ++j)
            to.b[i][j] = scale_at(block, j % 32, from.b + j / 32, product.b_byte + i, from.each < 4);
    }
}

static void copy_scales(Block &block, const TensorProduct &copy) {
    for (u32 lane = 0; lane < LANES; ++lane)
        memcpy(&tensor_word(block, lane, copy.d), block.shared + (row_of_scales(copy, lane % 32) - SHARED_BASE), 16);
}

// Sums are those of matrix.h: blocks of four along k, with the bits that float has. Products of elements, and of the
// scales of a row and a column, are exact.
WIDE_VECTORS void multiply_tensor_rows(TensorSums &sums, const TensorA &a, const TensorB &b, const Scales &scales,
                                       int n, int depth, int each) {
    for (u32 i = 0; i < LANES; ++i)
        for (int k = 0; k < depth; k += BLOCK)
            for (int j = 0; j < n; j += 4) {
                Floats sum, products[BLOCK];
                memcpy(&sum, &sums[i][j], sizeof sum);
                for (int t = 0; t < BLOCK; ++t) {
                    memcpy(&products[t], &b[k + t][j], sizeof sum);
                    products[t] *= a[i][k + t];
                }
                if (each) {
                    Floats scale;
                    memcpy(&scale, &scales.b[k * each / depth][j], sizeof scale);
                    for (int t = 0; t < BLOCK; ++t)
                        products[t] *= scale * scales.a[i][k * each / depth];
                }
                add_block(sum, products);
                memcpy(&sums[i][j], &sum, sizeof sum);
            }
}

static void read_held(Block &block, const TensorProduct &product, int depth, TensorA &to) {
    for (u32 lane = 0; lane < LANES; ++lane)
        for (int k = 0; k < depth; ++k) {
            const u32 word = tensor_word(block, lane, (u32)product.a + k / 2) >> 16 * (k % 2);
            to[lane][k] = widened((const unsigned char *)&word, product.shape.a);
        }
}

static void execute(Block &block, const TensorProduct &product) {
    static TensorA a;
    static TensorB b;
    static TensorSums sums;
    static Scales scales;
    if (product.copies)
        return each_block(block, product.blocks, product.site, [&](Block &each) { copy_scales(each, product); });
    const GroupShape &shape = product.shape;
    const bool integers = shape.a == GROUP_INT8;
    const SharedOperand first(product.held ? product.b : product.a, shape.a, shape.a_transposed, product.site);
    const SharedOperand second(product.b, shape.b, shape.b_transposed, product.site);
    const int columns = shape.n / product.blocks, depth = shape.a == GROUP_E2M1 ? 64 : 32 / size_of(shape.a);
    int done = 0;
    each_block(block, product.blocks, product.site,
               [&](Block &each) { read_operand(each, second, 0, columns, shape.b, &b[0][columns * done++], 1, 256); });
    each_block(block, product.blocks, product.site, [&](Block &each) {
        if (product.held)
            read_held(each, product, depth, a);
        else
            read_operand(each, first, 0, LANES, shape.a, &a[0][0], 64, 1);
        read_scales(each, product, scales);
        memset(sums, 0, sizeof sums);
        for (u32 i = 0; i < LANES && shape.kept && !integers; ++i)
            memcpy(sums[i], &tensor_word(each, i, product.d), shape.n * 4);
        multiply_tensor_rows(sums, a, b, scales, shape.n, depth, product.scales.each);
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

static TensorProduct begin(int blocks, u32 d, u64 a, TensorScales scales, Site site) {
    tick();
    use_blocks(blocks, site);
    prepare_async(*current->block);
    if (blocks == 2 && current->block->index % 2)
        invalid("a product of a pair by its second block", site);
    if ((d | scales.a | scales.b) >> 16)
        invalid("a product of tensor memory from another lane than 0 on", site);
    TensorProduct product{};
    product.d = d, product.a = a, product.scales = scales, product.blocks = blocks;
    product.thread = current->index, product.number = ++warp_async().multiplied, product.site = site;
    return product;
}

static void issue(const TensorProduct &product, u32 columns) {
    Block &block = *current->block;
    each_atom_of(product, block, [&](Block &each, Atom &atom) { begin_reading(each, atom, product.site); });
    each_block(block, product.blocks, product.site, [&](Block &each) { claim_columns(each, product, columns); });
    if (machine.request->early)
        execute(block, product);
    warp_async().products.push_back(product);
}

void tensor_multiply_held(int blocks, GroupElement kind, u32 d, u32 a, u64 b, u32 instruction, bool kept, Site site) {
    TensorProduct product = begin(blocks, d, a, TensorScales{}, site);
    if (a >> 16 || kind > GROUP_BFLOAT16)
        invalid("A in tensor memory from another lane than 0 on, or of other than 16 bits", site);
    product.held = true, product.b = without_version(b, site), product.shape.kept = kept;
    decode(product, instruction, kind);
    each_block(*current->block, blocks, site, [&](Block &each) { claim_held(each, product); });
    issue(product, (u32)product.shape.n);
}

void tensor_multiply(int blocks, GroupElement kind, u32 d, u64 a, u64 b, u32 instruction, TensorScales scales,
                     bool kept, Site site) {
    TensorProduct product = begin(blocks, d, without_version(a, site), scales, site);
    product.b = without_version(b, site), product.shape.kept = kept;
    decode(product, instruction, kind);
    each_block(*current->block, scales.each ? blocks : 0, site, [&](Block &each) {
        claim_scales(each, product, scales.a, LANES / 32);
        claim_scales(each, product, scales.b, ((u32)product.shape.n + 31) / 32);
    });
    issue(product, (u32)product.shape.n);
}

// 32 rows of 16 bytes, to four columns of every 32 lanes.
void tensor_copy_scales(int blocks, u32 to, u64 from, Site site) {
    TensorProduct copy = begin(blocks, to, without_version(from, site), TensorScales{}, site);
    copy.copies = true;
    issue(copy, 4);
}

template <class Act>
static void each_receiver(const Block &block, u32 to, Site site, Act act) {
    for (int rank = 0; to >> rank; ++rank)
        if (to >> rank & 1)
            act(peer(block, rank, site));
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
    const u32 number = ++block.async.committed;
    each_receiver(block, commit.to, commit.site, [&](Block &each) {
        for (MBarrier &barrier : each.async.barriers)
            if (barrier.address == commit.barrier) {
                if (&each != &block)
                    each.async.unseen.push_back(
                        {block.index, commit.thread, number, commit.barrier, barrier.phase, commit.site});
                barrier.gathered[place] = own.completed;
                count_arrival(barrier, commit.site);
            }
    });
}

void tensor_commit(int blocks, u32 barrier, u32 to, Site site) {
    tick();
    use_blocks(blocks, site);
    Block &block = *current->block;
    prepare_async(block);
    if (blocks == 1)
        to = 1u << rank_of(block);
    if (!to || to >> machine.request->cluster)
        invalid("a commit to no block, or to blocks that the cluster does not have", site);
    each_receiver(block, to, site, [&](Block &each) { find_mbarrier(each.async, barrier, site); });
    tensor_fence_before();
    WarpAsync &own = warp_async();
    own.commits.push_back({barrier, to, current->index, own.multiplied, site});
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
    for (const CommitArrival &each : block.async.unseen)
        fault(RACE,
              "the block ends, and nothing says that the commit of line %d of block %d has arrived at its mbarrier",
              each.site.line, each.block);
    for (const std::pair<u32, u32> &each : block.async.tensor.spans)
        fault(INVALID, "the block ends without having freed the %u columns of tensor memory from column %u on",
              each.second, each.first);
    for (const WarpAsync &warp : block.async.warps) {
        for (const TensorCommit &each : warp.commits)
            fault(RACE, "the block ends while the commit of line %d is on its way", each.site.line);
        for (const TensorMove &each : warp.moves)
            if (!each.waited)
                fault(RACE, "the block ends while the %s of line %d is on its way", each.stores ? "store" : "load",
                      each.site.line);
    }
}

} // namespace emulator
