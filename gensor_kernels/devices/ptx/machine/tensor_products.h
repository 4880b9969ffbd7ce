// Products of tensor memory (tcgen05.mma; PTX ISA 9.7.16.10) and their commits (9.7.16.12).
#pragma once
#include "tensor_memory.h"

namespace {
u32 field(u32 word, u32 first, u32 count) {
    return word >> first & ((1u << count) - 1);
}
// The form of a product by its instruction descriptor (9.7.16.4.2), without block scales. `factors` is m.
Product form_of(const Umma &umma) {
    const u32 word = umma.instruction;
    const auto wrong = [&](const char *kind, const char *what) {
        fault(kind, "%.120s: %s in the instruction descriptor %#x", umma.text, what, word);
    };
    if (word & (1u << 6 | 1u << 23 | 1u << 29))
        wrong("invalid", "reserved bits");
    if (field(word, 0, 3) || field(word, 30, 2))
        wrong("not_executed", "sparsity, or a shift of B");
    const auto kind = [&](u32 code) -> Kind {
        constexpr Kind NONE = F64;
        constexpr Kind TABLE[4][8] = {{F16, BF16, NONE, NONE, NONE, NONE, NONE, NONE},
                                      {NONE, NONE, TF32, NONE, NONE, NONE, NONE, NONE},
                                      {E4M3, E5M2, NONE, NONE, NONE, NONE, NONE, NONE},
                                      {U8, S8, NONE, NONE, NONE, NONE, NONE, NONE}};
        const Kind found = TABLE[(u8)umma.kind][code];
        if (found == NONE)
            wrong(umma.kind == UmmaKind::F8F6F4 && code >= 3 && code <= 5 ? "not_executed" : "invalid",
                  "the type of A or B");
        return found;
    };
    Product form{};
    form.a = kind(field(word, 7, 3)), form.b = kind(field(word, 10, 3));
    const bool whole = umma.kind == UmmaKind::I8, wide = form.a == TF32 || form.a == BF16 || form.b == BF16;
    const u32 d = field(word, 4, 2);
    if (whole ? d != 2 : d > 1 || (!d && wide))
        wrong("invalid", "the type of D");
    form.d = whole ? S32 : d ? F32 : F16;
    form.saturated = field(word, 3, 1), form.negated_a = field(word, 13, 1), form.negated_b = field(word, 14, 1);
    if (form.saturated > whole || (whole && (form.negated_a || form.negated_b)))
        wrong("invalid", "saturation or a sign");
    form.across_a = field(word, 15, 1), form.across_b = field(word, 16, 1);
    if (umma.held && form.across_a)
        wrong("invalid", "a transposed matrix in tensor memory");
    if ((form.across_a || form.across_b) && umma.kind == UmmaKind::TF32)
        wrong("not_executed", "a transposed matrix of tf32"); // needs a swizzle of atoms of 32 bytes (table 54)
    form.n = field(word, 17, 6) * 8, form.factors = field(word, 24, 5) * 16, form.k = 32 / element_bytes(form.a);
    const u32 step = umma.blocks * (whole && (umma.blocks == 2 || form.n > 32) ? 16u : 8u);
    if (form.n < step || form.n > 256 || form.n % step)
        wrong("invalid", "N");
    if (element_bytes(form.b) == 1 && form.across_b && form.n % (16 * umma.blocks))
        wrong("invalid", "N of a transposed B"); // table 52
    if (form.factors != 64 * umma.blocks && form.factors != 128 * umma.blocks)
        wrong("invalid", "M");
    if (umma.held && form.factors != 128 * umma.blocks)
        wrong("not_executed", "M of a matrix in tensor memory");
    return form;
}
// Rows of A in each block; those of columns from N / 2 on are in lanes from 64 on where a pair has 128 (layout B).
struct Halves {
    u32 blocks, rows, columns;
    bool split;
    Halves(const Umma &umma, const Product &form)
        : blocks(umma.blocks), rows(form.factors / umma.blocks), columns(form.n / umma.blocks),
          split(umma.blocks == 2 && rows == 64) {}
    // The lane of a row of a block, of a column in the first or second half (layouts A, B, D and F).
    u32 lane(u32 row, bool second) const {
        return split ? row + 64 * second : rows == 64 ? row % 16 + row / 16 * 32 : row;
    }
};
Block &block_of_pair(const TensorMemory::Work &work, u32 i) {
    Block &block = *work.issuer->block;
    return work.umma.blocks == 1 ? block : block.first[(block.rank & ~1u) + i];
}

// ---- Execution

// Sums of floats are those of a B200, as published: all exact products of an instruction and the sum so far are aligned
// to the largest sum of two exponents, truncated 25 bits below it, and added; the total is truncated to a float, or
// rounded to 16 bits (Xie, Wang, Yang and Yang, arXiv:2511.10909, 2025; Khattak and Mikaitis, arXiv:2512.07004, 2025).
struct Exponents {
    s16 a[32][16], b[32][256];

    template <size_t WIDTH>
    static void of(const f32 (&factors)[32][WIDTH], u32 k, u32 count, s16 (&to)[32][WIDTH]) {
        for (u32 j = 0; j < k; j++)
            for (u32 i = 0; i < count; i++)
                to[j][i] = of(factors[j][i]);
    }
    static s16 of(f32 value) { return (s16)std::max(((s32)(std::bit_cast<u32>(value) >> 23) & 255) - 127, -126); }
};
f64 power_of_two(s32 exponent) {
    return f64_of((u64)(1023 + exponent) << 52);
}
f64 aligned_sum(const Factors &factors, const Exponents &exponents, u32 row, u32 column, u32 k, f32 before) {
    s32 most = Exponents::of(before);
    for (u32 j = 0; j < k; j++)
        most = std::max(most, exponents.a[j][row] + exponents.b[j][column]);
    const f64 scale = power_of_two(25 - most);
    f64 total = std::trunc(before * scale);
    for (u32 j = 0; j < k; j++)
        total += std::trunc((f64)factors.a[j][row] * factors.b[j][column] * scale);
    return total * power_of_two(most - 25);
}
// 16 rows of A in tensor memory, whose elements are adjacent in the words of a lane.
void gather_lanes(const TensorMemory &tensor, u64 address, const Product &form, u32 first, Factors &factors) {
    const u32 each = 4 / element_bytes(form.a);
    for (u32 row = 0; row < 16; row++)
        for (u32 k = 0; k < form.k; k++) {
            u8 bytes[4];
            std::memcpy(bytes, &tensor.word[first + row][(address & 0xffff) + k / each], 4);
            const f32 value = element(bytes, k % each, form.a);
            factors.a[k][row] = form.negated_a ? -value : value;
        }
}
void execute(TensorMemory::Work &work) {
    static thread_local Factors factors;
    static thread_local Exponents exponents;
    const Product &form = work.form;
    const Halves halves(work.umma, form);
    const u32 of_a = work.umma.held ? 0 : halves.rows * form.k * element_bytes(form.a) / 16;
    const u32 column = work.umma.d & 0xffff, first_lane = (u32)(work.umma.d >> 16);
    for (u32 i = 0; i < halves.blocks; i++)
        gather(block_of_pair(work, i), work.tiles[i].data() + of_a, halves.columns, form.across_b, form.b,
               form.negated_b, form.k, 0, halves.columns, factors.b, i * halves.columns);
    Exponents::of(factors.b, form.k, form.n, exponents.b);
    for (u32 i = 0; i < halves.blocks; i++)
        for (u32 first = 0; first < halves.rows; first += 16) {
            Block &block = block_of_pair(work, i);
            TensorMemory &tensor = tensor_of(block);
            if (work.umma.held)
                gather_lanes(tensor, work.umma.a, form, first, factors);
            else
                gather(block, work.tiles[i].data(), halves.rows, form.across_a, form.a, form.negated_a, form.k, first,
                       first + 16, factors.a);
            Exponents::of(factors.a, form.k, 16, exponents.a);
            for (u32 row = 0; row < 16; row++) {
                f64 sums[256];
                if (form.d == S32)
                    sum_row(factors, row, form.n, form.k, sums);
                for (u32 n = 0; n < form.n; n++) {
                    const bool second = halves.split && n >= form.n / 2;
                    u32 &d = tensor.word[first_lane + halves.lane(first + row, second)]
                                        [column + n - (second ? form.n / 2 : 0)];
                    if (form.d == S32) {
                        d = total(form, sums[n], d, work.umma.kept);
                        continue;
                    }
                    const f32 before = !work.umma.kept ? 0 : form.d == F16 ? f32_of_f16((u16)d) : f32_of(d);
                    const f64 sum = block.launch->truncated ? tensor_sum(factors.a, row, factors.b, n, form.k, before)
                                                            : aligned_sum(factors, exponents, row, n, form.k, before);
                    // A sum of 16 bits is in the lower half of its word.
                    d = form.d == F16 ? f16_of(sum) | 0xffff0000u : bits_of(directed_f32(sum, ZERO));
                }
            }
        }
    work.executed = true;
}
// Everything that a block issued until a commit is complete, whose mbarriers then get their arrivals.
void deliver_commit(Block &block, size_t place) {
    TensorMemory &tensor = tensor_of(block);
    for (size_t i = 0; i <= place; i++) {
        TensorMemory::Work &commit = tensor.work[i];
        if (!commit.commit) {
            if (!commit.executed)
                execute(commit);
            continue;
        }
        std::vector<u32> uses, operations;
        for (size_t j = 0; j < i; j++) {
            TensorMemory::Work &each = tensor.work[j];
            if (each.issuer != commit.issuer || each.commit || each.umma.text == nullptr)
                continue;
            for (u32 b = 0; b < each.umma.blocks; b++)
                read_tiles(block_of_pair(each, b), each.tiles[b], -1);
            uses.push_back(each.use), operations.push_back(each.operation);
            each.umma.text = nullptr; // complete
        }
        std::vector<u64> keys;
        for (const auto &[target, address] : commit.mbarriers) {
            if (target->ended)
                fault("ended", "a commit reaches block %u, which has ended", target->index);
            Mbarrier *const m = found_mbarrier(*target, address);
            if (!m)
                fault("mbarrier", "a commit reaches an mbarrier at %#x of block %u that is no longer there", address,
                      target->index);
            check_arrivals(*target, *m, 1);
            keys.push_back(key_of(*target, *m, m->phase));
        }
        if (Causality *causality = commit.issuer->causality)
            causality->publish_tensor(commit.issuer->slot, uses, operations, commit.before, keys);
        for (const auto &[target, address] : commit.mbarriers) {
            Mbarrier &m = *found_mbarrier(*target, address);
            m.pending--;
            settle(*target, m);
        }
        commit.umma.text = nullptr;
    }
    std::erase_if(tensor.work, [](const TensorMemory::Work &each) { return !each.umma.text; });
}
// Deliver a commit for whose mbarrier a thread waits, or the first; false where there is none.
bool deliver_commits(Block &block, bool any) {
    if (!block.traffic->tensor)
        return false;
    const auto &work = block.traffic->tensor->work;
    for (size_t i = 0; i < work.size(); i++)
        for (const auto &[target, address] : work[i].mbarriers)
            for (u32 n = 0; n < block.launch->threads; n++)
                if (any || (target->threads[n].stop == PHASE && target->threads[n].awaited == address)) {
                    deliver_commit(block, i);
                    return true;
                }
    return false;
}
// At the end of a block, its products must be complete and its columns free.
void end_tensor(Block &block) {
    if (!block.traffic->tensor)
        return;
    TensorMemory &tensor = *block.traffic->tensor;
    for (const TensorMemory::Work &each : tensor.work)
        fault("in_flight", "%.120s: in flight when its block ends", each.umma.text);
    for (const auto &each : tensor.allocations)
        fault("tensor", "block %u ends and leaves %u columns allocated", block.index, each.count);
    if (!tensor.moves.empty())
        fault("in_flight", "%.120s: in flight when its block ends", tensor.moves[0].site->text);
}
} // namespace

void issue_umma(Thread &t, const Umma &umma) {
    Block &block = *t.block;
    check_group(block, umma.blocks, umma.text);
    TensorMemory::Work work{&t, umma, form_of(umma)};
    const Product &form = work.form;
    const Halves halves(umma, form);
    const Descriptor b = Descriptor::of_tcgen05(umma.b, umma.text);
    const u32 column = umma.d & 0xffff, lane = (u32)(umma.d >> 16), columns = halves.split ? form.n / 2 : form.n;
    const bool quarters = halves.rows == 64 && !halves.split; // 16 lanes of each warp's 32
    if ((lane && !(quarters && lane == 16)) || (umma.held && umma.a >> 16))
        fault("tensor", "%.120s: rows from lane %u on", umma.text, lane);
    if (t.causality) {
        const u64 shape = (u64)(umma.instruction & 0x1f7e0000u) << 32 | umma.d; // M and N
        work.use = t.causality->issue_tensor(t.slot, {umma.text, TensorUse::PRODUCT, shape << 1 | (umma.blocks - 1)});
        work.operation = t.causality->issue(t.slot, umma.text, true);
    }
    for (u32 i = 0; i < halves.blocks; i++) {
        Block &each = block_of_pair(work, i);
        if (each.ended)
            fault("ended", "%.120s: block %u has ended", umma.text, each.index);
        check_columns(each, column, columns, umma.text);
        for (u32 first = lane; first < LANES; first += quarters ? 32 : 16) {
            touch_tensor(t, each, work.use, first, column, columns, umma.kept ? READS | WRITES : WRITES, umma.text);
        }
        if (umma.held) {
            check_columns(each, umma.a & 0xffff, 8, umma.text);
            for (u32 first = 0; first < LANES; first += 16)
                touch_tensor(t, each, work.use, first, umma.a & 0xffff, 8, READS, umma.text);
        } else {
            place_tile(each, Descriptor::of_tcgen05(umma.a, umma.text), umma.text, halves.rows, form.across_a, form.a,
                       form.k, work.tiles[i]);
        }
        place_tile(each, b, umma.text, halves.columns, form.across_b, form.b, form.k, work.tiles[i]);
        for (u32 address : work.tiles[i]) {
            proxied(t, each, address, 16, ARRIVING | OBJECT, "a product reads");
            if (t.causality)
                t.causality->covers_shared(work.operation, each.resident, address - SHARED_BASE, 16, false);
        }
        read_tiles(each, work.tiles[i], 1);
    }
    if (!block.launch->late)
        execute(work);
    tensor_of(block).work.push_back(std::move(work));
}
void commit_umma(Thread &t, u64 mbarrier, u32 blocks, bool multicast, u32 mask) {
    check_group(*t.block, blocks, "tcgen05.commit");
    TensorMemory::Work work{&t, {"tcgen05.commit"}, {}};
    work.commit = true;
    const auto arrive_at = [&](Block &block) {
        work.mbarriers.push_back({&block, mbarrier_at(t, block, mbarrier, false).address});
    };
    if (multicast) {
        own_address(t, mbarrier);
        if (!mask || mask >> t.block->launch->cluster)
            fault("invalid", "a commit to the blocks %#x of a cluster of %u", mask, t.block->launch->cluster);
        for (u32 rank = 0; rank < t.block->launch->cluster; rank++)
            if (mask >> rank & 1)
                arrive_at(t.block->first[rank]);
    } else {
        Block &block = block_of(t, mbarrier);
        arrive_at(block);
    }
    if (t.causality)
        work.before = t.causality->commit_tensor(t.slot);
    auto &queue = tensor_of(*t.block).work;
    queue.push_back(std::move(work));
    if (!t.block->launch->late)
        deliver_commit(*t.block, queue.size() - 1);
}
