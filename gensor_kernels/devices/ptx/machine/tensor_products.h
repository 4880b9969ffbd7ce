// Products of tensor memory (tcgen05.mma; PTX ISA 9.7.16.10) and their commits (9.7.16.12).
#pragma once
#include "tensor_memory.h"

namespace {
u32 field(u32 word, u32 first, u32 count) {
    return word >> first & ((1u << count) - 1);
}
// The form of a product by its instruction descriptor (9.7.16.4.2). `factors` is m.
Product form_of(const Umma &umma) {
    const u32 word = umma.instruction;
    const auto wrong = [&](const char *kind, const char *what) {
        fault(kind, "%.120s: %s in the instruction descriptor %#x", umma.text, what, word);
    };
    const bool fours = umma.kind == UmmaKind::MXF4 || umma.kind == UmmaKind::MXF4NVF4,
               whole = umma.kind == UmmaKind::I8;
    if (word & (umma.scales ? 3u | 1u << 3 | 1u << 6 | 7u << 24 | (fours ? 1u << 12 : 1u << 31)
                            : 1u << 6 | 1u << 23 | 1u << 29))
        wrong("invalid", "reserved bits");
    if (word & (umma.scales ? 1u << 2 | (fours ? 1u << 31 : 0) : 7u | 3u << 30))
        wrong("not_executed", "sparsity, a shift of B, or another K");
    const auto kind = [&](u32 code) -> Kind {
        constexpr Kind NONE = F64;
        constexpr Kind TABLE[][8] = {
            {F16, BF16, NONE, NONE, NONE, NONE, NONE, NONE},      {NONE, NONE, TF32, NONE, NONE, NONE, NONE, NONE},
            {E4M3, E5M2, NONE, E2M3, E3M2, E2M1, NONE, NONE},     {U8, S8, NONE, NONE, NONE, NONE, NONE, NONE},
            {E4M3, E5M2, NONE, E2M3, E3M2, E2M1, NONE, NONE},     {NONE, E2M1_PAIR, NONE, NONE, NONE, NONE, NONE, NONE},
            {NONE, E2M1_PAIR, NONE, NONE, NONE, NONE, NONE, NONE}};
        if (TABLE[(u8)umma.kind][code] == NONE)
            wrong("invalid", "the type of A or B");
        return TABLE[(u8)umma.kind][code];
    };
    Product form{};
    form.a = kind(field(word, 7, 3)), form.b = kind(field(word, 10, 3));
    const bool wide = form.a == TF32 || form.a == BF16 || form.b == BF16;
    const u32 d = umma.scales ? 1 : field(word, 4, 2);
    if (whole ? d != 2 : d > 1 || (!d && wide))
        wrong("invalid", "the type of D");
    form.d = whole ? S32 : d ? F32 : F16;
    form.saturated = field(word, 3, 1), form.negated_a = field(word, 13, 1), form.negated_b = field(word, 14, 1);
    if (form.saturated > whole || (whole && (form.negated_a || form.negated_b)))
        wrong("invalid", "saturation or a sign");
    form.across_a = field(word, 15, 1), form.across_b = field(word, 16, 1);
    const auto across = [&](bool turned, Kind type) {
        if (turned && type == TF32)
            wrong("not_executed", "a transposed matrix of tf32"); // needs a swizzle of atoms of 32 bytes (table 54)
        if (turned && type > S32)
            wrong("invalid", "a transposed matrix of 4 or 6 bits");
    };
    across(form.across_a, form.a), across(form.across_b, form.b);
    form.n = field(word, 17, 6) * 8, form.k = 2 * chunk_of(form.a);
    form.factors = umma.scales ? field(word, 27, 2) * 128 : field(word, 24, 5) * 16;
    const u32 step = umma.blocks * (whole && (umma.blocks == 2 || form.n > 32) ? 16u : 8u);
    if (form.n < step || form.n > 256 || form.n % step)
        wrong("invalid", "N");
    if (form.across_b && element_bytes(form.b) == 1 && form.n % (16 * umma.blocks))
        wrong("invalid", "N of a transposed B"); // table 52
    if (form.factors != 128 * umma.blocks && (form.factors != 64 * umma.blocks || (umma.scales && umma.blocks == 1)))
        wrong("invalid", "M");
    if ((umma.held || umma.scales) && form.factors != 128 * umma.blocks)
        wrong("not_executed", "M of scaled matrices, or with A in tensor memory");
    if (umma.held && (form.across_a || form.a > S32))
        wrong(form.across_a ? "invalid" : "not_executed", "the layout of A in tensor memory");
    if (!umma.scales)
        return form;
    const bool powers = field(word, 23, 1); // of two: ue8m0
    if (powers ? umma.scales == 4 && umma.kind != UmmaKind::MXF4NVF4 : umma.scales != 4)
        wrong("invalid", "the type of scales");
    for (u32 id : {field(word, 4, 2), field(word, 29, 2)})
        if (id + umma.scales > 4 || (umma.scales == 2 && id % 2))
            wrong("invalid", "the first byte of scales");
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

struct Exponents {
    s16 a[MOST_K][16], b[MOST_K][256];

    template <size_t WIDTH>
    static void of(const f32 (&factors)[MOST_K][WIDTH], u32 k, u32 count, s16 (&to)[MOST_K][WIDTH]) {
        for (u32 j = 0; j < k; j++)
            for (u32 i = 0; i < count; i++)
                to[j][i] = of(factors[j][i]);
    }
    static s16 of(f32 value) { return (s16)std::max(((s32)(std::bit_cast<u32>(value) >> 23) & 255) - 127, -126); }
};
f64 power_of_two(s32 exponent) {
    return f64_of((u64)(1023 + exponent) << 52);
}
f32 truncated(f64 value) {
    const f32 near = (f32)value;
    const bool beyond = std::fabs((f64)near) > std::fabs(value) && std::fabs(value) < 0x1p128;
    return beyond ? std::bit_cast<f32>(std::bit_cast<u32>(near) - 1) : near;
}
// Add a row's products to its sums, as published of a B200: all exact products of an instruction and the sum so far are
// aligned to the largest sum of exponents, truncated 25 bits below it, and added; the total is truncated to a float, or
// rounded to 16 bits (Xie, Wang, Yang and Yang, arXiv:2511.10909, 2025; Khattak and Mikaitis, arXiv:2512.07004, 2025).
// The compiler vectorises over eight columns.
void add_aligned(const Factors &factors, const Exponents &exponents, u32 row, u32 n, u32 k, f64 (&sums)[256]) {
    for (u32 column = 0; column < n; column += 8) {
        s32 most[8];
        f64 total[8], unit[8];
        for (int c = 0; c < 8; c++)
            most[c] = Exponents::of((f32)sums[column + c]);
        for (u32 j = 0; j < k; j++)
            for (int c = 0; c < 8; c++)
                most[c] = std::max(most[c], exponents.a[j][row] + exponents.b[j][column + c]);
        for (int c = 0; c < 8; c++)
            unit[c] = power_of_two(25 - most[c]), total[c] = std::trunc(sums[column + c] * unit[c]);
        for (u32 j = 0; j < k; j++)
            for (int c = 0; c < 8; c++)
                total[c] += std::trunc((f64)factors.a[j][row] * factors.b[j][column + c] * unit[c]);
        for (int c = 0; c < 8; c++)
            sums[column + c] = total[c] * power_of_two(most[c] - 25);
    }
}
// Scales of a row or a column, and their exponents; of no scales, 1.
struct Scales {
    f64 value[4] = {1, 1, 1, 1};
    s32 exponent[4] = {};

    // From the copy that 32 lanes have, from a byte of their words on (9.7.16.10.7.2).
    Scales(const TensorMemory &tensor, const Umma &umma, u64 address, u32 byte, u32 place, u32 lanes) {
        const u32 word = tensor.word[lanes + place % 32][(address & 0xffff) + place / 32] >> 8 * byte;
        for (u32 i = 0; i < umma.scales; i++) {
            const u32 code = word >> 8 * i & 0xff;
            if (field(umma.instruction, 23, 1)) {
                exponent[i] = (s32)code - 127, value[i] = code == 255 ? NAN : std::ldexp(1.0, exponent[i]);
            } else {
                exponent[i] = std::max((s32)(code >> 3 & 15), 1) - 7, value[i] = NUMBERS.of_e4m3[code & 0x7f];
            }
        }
    }
};
// The products of a row and a column with scales; of numbers of four bits, the exact sums of 16 products, times their
// scales, are truncated 35 bits below the largest.
struct Terms {
    const Factors &factors;
    const Exponents &exponents;
    u32 row, column, k, scales;
    const Scales of_a, of_b;

    f64 product(u32 j) const { return (f64)factors.a[j][row] * factors.b[j][column]; }
    f64 scaled(f64 value, u32 j) const {
        const u32 i = j * scales / k;
        return value * of_a.value[i] * of_b.value[i];
    }
    f64 aligned_sum(f32 before) const {
        const u32 each = k == MOST_K ? 16 : 1, bits = k == MOST_K ? 35 : 25;
        s32 most = Exponents::of(before);
        for (u32 j = 0; j < k; j += each) {
            const u32 i = j * scales / k;
            const s32 own = each == 1 ? exponents.a[j][row] + exponents.b[j][column] : 0;
            most = std::max(most, own + of_a.exponent[i] + of_b.exponent[i]);
        }
        const f64 unit = power_of_two((s32)bits - most);
        f64 total = std::trunc(before * unit);
        for (u32 j = 0; j < k; j += each) {
            f64 part = product(j);
            for (u32 i = j + 1; i < j + each; i++)
                part += product(i);
            total += std::trunc(scaled(part, j) * unit);
        }
        return total * power_of_two(most - (s32)bits);
    }
};
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
void execute_product(TensorMemory::Work &work) {
    static thread_local Factors factors;
    static thread_local Exponents exponents;
    const Product &form = work.form;
    const Umma &umma = work.umma;
    const Halves halves(umma, form);
    const u32 of_a = umma.held ? 0 : 2 * halves.rows; // a row has 32 bytes
    const u32 column = umma.d & 0xffff, first_lane = (u32)(umma.d >> 16);
    for (u32 i = 0; i < halves.blocks; i++)
        gather(block_of_pair(work, i), work.tiles[i].data() + of_a, halves.columns, form.across_b, form.b,
               form.negated_b, form.k, 0, halves.columns, factors.b, i * halves.columns);
    Exponents::of(factors.b, form.k, form.n, exponents.b);
    for (u32 i = 0; i < halves.blocks; i++)
        for (u32 first = 0; first < halves.rows; first += 16) {
            Block &block = block_of_pair(work, i);
            TensorMemory &tensor = tensor_of(block);
            if (umma.held)
                gather_lanes(tensor, umma.a, form, first, factors);
            else
                gather(block, work.tiles[i].data(), halves.rows, form.across_a, form.a, form.negated_a, form.k, first,
                       first + 16, factors.a);
            Exponents::of(factors.a, form.k, 16, exponents.a);
            for (u32 row = 0; row < 16; row++) {
                const auto word = [&](u32 n) -> u32 & {
                    const bool second = halves.split && n >= form.n / 2;
                    return tensor
                        .word[first_lane + halves.lane(first + row, second)][column + n - (second ? form.n / 2 : 0)];
                };
                f64 sums[256];
                for (u32 n = 0; n < form.n; n++)
                    sums[n] = !umma.kept || form.d == S32 ? 0
                              : form.d == F16             ? f32_of_f16((u16)word(n))
                                                          : f32_of(word(n));
                if (form.d == S32)
                    sum_row(factors, row, form.n, form.k, sums);
                else if (!umma.scales && !block.launch->truncated)
                    add_aligned(factors, exponents, row, form.n, form.k, sums);
                for (u32 n = 0; n < form.n && form.d != S32 && (umma.scales || block.launch->truncated); n++) {
                    const u32 lanes = (first + row) / 32 * 32; // whose copies of scales these rows use
                    const Terms terms{factors,
                                      exponents,
                                      row,
                                      n,
                                      form.k,
                                      umma.scales,
                                      {tensor, umma, umma.a_scales, field(umma.instruction, 29, 2), first + row, lanes},
                                      {tensor, umma, umma.b_scales, field(umma.instruction, 4, 2), n, lanes}};
                    sums[n] =
                        block.launch->truncated
                            ? tensor_sum(form.k, (f32)sums[n], [&](u32 j) { return terms.scaled(terms.product(j), j); })
                            : terms.aligned_sum((f32)sums[n]);
                }
                // A sum of 16 bits is in the lower half of its word.
                for (u32 n = 0; n < form.n; n++)
                    word(n) = form.d == S32   ? total(form, sums[n], word(n), umma.kept)
                              : form.d == F16 ? f16_of(sums[n]) | 0xffff0000u
                                              : bits_of(truncated(sums[n]));
            }
        }
}
// tcgen05.cp: 32 rows of 16 bytes to each quarter of the lanes (9.7.16.9.2).
void execute_copy(TensorMemory::Work &work) {
    for (u32 i = 0; i < work.umma.blocks; i++)
        for (u32 lane = 0; lane < LANES; lane++)
            std::memcpy(&tensor_of(block_of_pair(work, i)).word[lane][work.umma.d & 0xffff],
                        block_of_pair(work, i).shared + (work.tiles[i][lane % 32] - SHARED_BASE), 16);
}
void execute(TensorMemory::Work &work) {
    (work.copy ? execute_copy : execute_product)(work);
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
        std::vector<u64> keys, narrow;
        for (const auto &[target, address] : commit.mbarriers) {
            if (target->ended)
                fault("ended", "a commit reaches block %u, which has ended", target->index);
            Mbarrier *const m = found_mbarrier(*target, address);
            if (!m)
                fault("mbarrier", "a commit reaches an mbarrier at %#x of block %u that is no longer there", address,
                      target->index);
            check_arrivals(*target, *m, 1);
            const bool remote = target != commit.issuer->block;
            (remote ? narrow : keys).push_back(key_of(*target, *m, m->phase));
            if (remote)
                keys.push_back(key_of(*target, *m, m->phase, Edge::FROM_OTHERS));
        }
        if (Causality *causality = commit.issuer->causality)
            causality->publish_tensor(commit.issuer->slot, uses, operations, commit.before, keys, narrow);
        const u32 number = ++tensor.commits;
        for (const auto &[target, address] : commit.mbarriers) {
            Mbarrier &m = *found_mbarrier(*target, address);
            if (target != &block)
                target->traffic->visits.push_back({commit.issuer, address, ticks, m.phase, number});
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
void read_shared(Thread &t, Block &block, const TensorMemory::Work &work, u32 i) {
    for (u32 address : work.tiles[i]) {
        proxied(t, block, address, 16, ARRIVING | OBJECT, work.copy ? "a copy reads" : "a product reads");
        if (t.causality)
            t.causality->covers_shared(work.operation, block.resident, address - SHARED_BASE, 16, false);
    }
    read_tiles(block, work.tiles[i], 1);
}
void begin(Thread &t, TensorMemory::Work &work, const TensorUse &use) {
    for (u32 i = 0; i < work.umma.blocks; i++)
        if (const Block &block = block_of_pair(work, i); block.ended)
            fault("ended", "%.120s: block %u has ended", use.text, block.index);
    if (t.causality)
        work.use = t.causality->issue_tensor(t.slot, use), work.operation = t.causality->issue(t.slot, use.text, true);
}
void submit(Thread &t, TensorMemory::Work &&work) {
    if (!t.block->launch->late)
        execute(work);
    tensor_of(*t.block).work.push_back(std::move(work));
}
} // namespace

void issue_umma(Thread &t, const Umma &umma) {
    const char *const text = umma.text;
    check_group(*t.block, umma.blocks, text);
    TensorMemory::Work work{&t, umma, form_of(umma)};
    const Product &form = work.form;
    const Halves halves(umma, form);
    const u32 column = umma.d & 0xffff, lane = (u32)(umma.d >> 16), columns = halves.split ? form.n / 2 : form.n;
    const bool quarters = halves.rows == 64 && !halves.split; // 16 lanes of each warp's 32
    if ((lane && !(quarters && lane == 16)) || (umma.held && umma.a >> 16) || (umma.a_scales | umma.b_scales) >> 16)
        fault("tensor", "%.120s: rows from lane %u on", text, lane);
    const u64 shape = (u64)(umma.instruction & 0x1f7e0000u) << 32 | umma.d; // M and N
    begin(t, work, {text, TensorUse::PRODUCT, shape << 1 | (umma.blocks - 1)});
    for (u32 i = 0; i < halves.blocks; i++) {
        Block &each = block_of_pair(work, i);
        const u8 how = umma.kept ? READS | WRITES : WRITES;
        touch_tensor(t, each, work.use, text, {column, columns, how, lane, LANES, quarters ? 32u : 16u});
        if (umma.held)
            touch_tensor(t, each, work.use, text, {(u32)umma.a & 0xffff, 8, READS});
        else
            place_tile(each, Descriptor::of_tcgen05(umma.a, text), text, halves.rows, form.across_a, form.a, form.k,
                       work.tiles[i]);
        place_tile(each, Descriptor::of_tcgen05(umma.b, text), text, halves.columns, form.across_b, form.b, form.k,
                   work.tiles[i]);
        if (umma.scales) {
            touch_tensor(t, each, work.use, text, {(u32)umma.a_scales, 4, READS});
            touch_tensor(t, each, work.use, text, {(u32)umma.b_scales, (form.n + 31) / 32, READS});
        }
        read_shared(t, each, work, i);
    }
    submit(t, std::move(work));
}
void copy_to_tensor(Thread &t, u64 to, u64 from, u32 blocks, const char *text) {
    check_group(*t.block, blocks, text);
    TensorMemory::Work work{&t, {text, UmmaKind::F16, (u8)blocks, false, to}, {}};
    work.copy = true;
    if (to >> 16)
        fault("tensor", "%.120s: to lane %u", text, (u32)(to >> 16));
    const Descriptor rows = Descriptor::of_tcgen05(from, text);
    begin(t, work, {text, TensorUse::COPY});
    for (u32 i = 0; i < blocks; i++) {
        Block &each = block_of_pair(work, i);
        touch_tensor(t, each, work.use, text, {(u32)to, 4, WRITES});
        for (u32 row = 0; row < 32; row++)
            work.tiles[i].push_back(checked(each, rows.at(false, row, 0), text));
        read_shared(t, each, work, i);
    }
    submit(t, std::move(work));
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
