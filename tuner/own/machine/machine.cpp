// Blocks of a kernel, executed from its machine code to count what they do: warps of 32 lanes in order, one instruction
// at a time, with the scoreboards that the compiler encoded.
//
// Numbers are computed as the hardware does but for rounding modes, flushed denormals and approximate functions, so
// that control and addresses that depend on data are exact. decode.py makes Instructions of what nvdisasm prints, and
// operands.py the enumerations.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <vector>

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

// The enumerations of operands.py are here.
struct Operand {
    u8 kind, flags;
    u16 index; // of a register, or the bank of a constant
    i32 value; // an immediate, or an offset
    u16 base;  // of an offset: a register, and a uniform one of an address
    u16 shift; // of an address: its register is shifted left
};
struct Instruction {
    u16 op;
    u8 guard, guard_flags; // predicate, INVERTED or TO_UNIFORM's bit
    u8 stall, waits;
    signed char scoreboard;
    u8 bytes; // of an access
    u8 sub, joined, space, padding;
    u32 modifiers;
    i32 target;
    Operand d, e, f, a, b, c, p, q;
};
struct Buffer {
    u64 address, bytes;
    u8 *host;
    u32 *seen; // by sector: the number of the block that read it last
    u32 writable, padding;
};
struct Launch {
    u32 grid[3], block[3];
    u32 shared_bytes, local_bytes, buffers, instructions, latency_shared, latency_near;
    u32 latency_far[2]; // of a line's first read: where the L2 has it, and where DRAM has
    u32 most_steps;
    const Buffer *buffer;
    const Instruction *code;
    const u8 *bank[5]; // constants
    u32 bank_bytes[5];
};
struct Counts { // of one block, by instruction
    u64 *issued, *lanes, *sectors, *lines, *wavefronts;
    u64 read, written; // distinct sectors that the block reads; sectors that it writes
    u64 clocks[2];     // of the block alone, of its slowest warp, by latency_far
};
struct Failure {
    char text[300];
};
struct Endless {
    u32 warp;
};
[[noreturn]] static void fail(const char *format, ...) {
    Failure made;
    va_list rest;
    va_start(rest, format);
    vsnprintf(made.text, sizeof made.text, format, rest);
    va_end(rest);
    throw made;
}

template <class T, class F>
static T cast(F from) {
    static_assert(sizeof(T) == sizeof(F));
    return std::bit_cast<T>(from);
}
static float number(u32 bits) {
    return cast<float>(bits);
}
static u32 bits_of(float value) {
    return cast<u32>(value);
}
static float half_number(u16 bits) {
    return (float)cast<_Float16>(bits);
}
static u16 half_bits(float value) {
    return cast<u16>((_Float16)value);
}
static float brain_number(u16 bits) {
    return number((u32)bits << 16);
}
static u16 brain_bits(float value) {
    const u32 bits = bits_of(value);
    return std::isnan(value) ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

constexpr u32 ZERO = 255, TRUE = 7, SHARED_BASE = 1024;
constexpr u32 FAR = ~0u; // stands for latency_far
using Lanes = u32[32];

struct Warp {
    u32 index, alive, waiting = 0, arrived = 0; // masks of lanes: at a BSYNC, and at the block's barrier
    u32 pc[32] = {}, sync[32] = {};             // the convergence barrier that a lane waits at
    u32 registers[257][32] = {}, uniform[257] = {};
    u32 predicates[8] = {}, uniform_predicates = 1u << TRUE, barriers[16] = {};
    u32 awaited[32] = {}; // the block's barrier that a lane waits at
    u64 clock[2] = {}, ready[6][2] = {};
    u64 steps = 0;
    std::vector<u8> local;
};

class Block {
  public:
    Block(const Launch &launch, u32 number, Counts &counts)
        : launch_(launch), counts_(counts), number_(number), shared_(SHARED_BASE + launch.shared_bytes, 0) {
        u32 rest = number;
        for (u32 axis = 0; axis < 3; axis++)
            place_[axis] = rest % launch.grid[axis], rest /= launch.grid[axis];
        threads_ = launch.block[0] * launch.block[1] * launch.block[2];
        for (u32 first = 0; first < threads_; first += 32) {
            auto warp = std::make_unique<Warp>();
            const u32 lanes = std::min(threads_ - first, 32u);
            warp->index = first / 32, warp->alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
            warp->predicates[TRUE] = ~0u;
            warp->local.assign((size_t)launch.local_bytes * 32, 0);
            warps_.push_back(std::move(warp));
        }
    }
    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (auto &warp : warps_)
                while (step(*warp))
                    moved = true;
            moved |= release();
        }
        for (auto &warp : warps_) {
            if (warp->alive)
                fail("block %u never ends: warp %u waits at instruction %u", number_, warp->index,
                     warp->pc[std::countr_zero(warp->alive)]);
            for (u32 far = 0; far < 2; far++)
                counts_.clocks[far] = std::max(counts_.clocks[far], warp->clock[far]);
        }
    }

  private:
    const Launch &launch_;
    Counts &counts_;
    u32 number_, place_[3], threads_;
    std::vector<std::unique_ptr<Warp>> warps_;
    std::vector<u8> shared_;
    Lanes scratch_[8];

    // Opens barriers that all living threads wait at.
    bool release() {
        u32 alive = 0, waiting[16] = {};
        u64 latest[16][2] = {};
        for (auto &warp : warps_) {
            alive += std::popcount(warp->alive);
            for (u32 lane = 0; lane < 32; lane++)
                if (warp->arrived >> lane & 1) {
                    const u32 barrier = warp->awaited[lane] & 15;
                    waiting[barrier]++;
                    for (u32 far = 0; far < 2; far++)
                        latest[barrier][far] = std::max(latest[barrier][far], warp->clock[far]);
                }
        }
        bool opened = false;
        for (auto &warp : warps_)
            for (u32 lane = 0; lane < 32; lane++)
                if (warp->arrived >> lane & 1) {
                    const u32 barrier = warp->awaited[lane] & 15, count = warp->awaited[lane] >> 4;
                    if (waiting[barrier] >= (count ? count : alive)) {
                        warp->arrived &= ~(1u << lane), warp->pc[lane]++, opened = true;
                        for (u32 far = 0; far < 2; far++)
                            warp->clock[far] = std::max(warp->clock[far], latest[barrier][far]);
                    }
                }
        return opened;
    }

    // ---- operands

    template <class Each>
    static void each(u32 mask, Each body) {
        if (mask == ~0u)
            for (u32 lane = 0; lane < 32; lane++)
                body(lane);
        else
            for (u32 rest = mask; rest; rest &= rest - 1)
                body((u32)std::countr_zero(rest));
    }
    u64 constant(u32 bank, i64 offset, u32 bytes) const {
        if (bank >= 5 || offset < 0 || offset + bytes > launch_.bank_bytes[bank])
            fail("a constant at c[%u][0x%llx], which is not there", bank, (unsigned long long)offset);
        u64 value = 0;
        std::memcpy(&value, launch_.bank[bank] + offset, bytes);
        return value;
    }
    static u32 *written(Warp &w, const Operand &o, u32 more = 0) {
        return w.registers[o.index == ZERO ? 256 : o.index + more];
    }
    void base(Warp &w, const Operand &o, u32 part, u32 *to) { // a register's word `part`, without signs
        switch (o.kind) {
        case REGISTER:
            std::memcpy(to, o.index == ZERO ? w.registers[ZERO] : w.registers[o.index + part], sizeof(Lanes));
            return;
        case UNIFORM:
            std::fill_n(to, 32, o.index == ZERO ? 0 : w.uniform[o.index + part]);
            return;
        case IMMEDIATE:
            std::fill_n(to, 32, part ? (u32)(o.value >> 31) : (u32)o.value);
            return;
        case CONSTANT:
            if (o.base == ZERO || o.flags & BASE_UNIFORM) {
                const i64 more = o.base == ZERO ? 0 : (i32)w.uniform[o.base];
                std::fill_n(to, 32, (u32)constant(o.index, o.value + more + 4 * part, 4));
            } else
                for (u32 lane = 0; lane < 32; lane++)
                    to[lane] = w.alive >> lane & 1
                                   ? (u32)constant(o.index, o.value + (i64)(i32)w.registers[o.base][lane] + 4 * part, 4)
                                   : 0;
            return;
        default:
            std::fill_n(to, 32, 0);
        }
    }
    const u32 *bits(Warp &w, const Operand &o, u32 slot, u32 part = 0) { // of an integer or a set
        if (o.kind == REGISTER && !(o.flags & (NEGATED | ABSOLUTE | INVERTED)))
            return o.index == ZERO ? w.registers[ZERO] : w.registers[o.index + part];
        u32 *const to = scratch_[slot];
        base(w, o, part, to);
        for (u32 lane = 0; lane < 32; lane++) {
            if (o.flags & ABSOLUTE)
                to[lane] = (i32)to[lane] < 0 ? -to[lane] : to[lane];
            if (o.flags & NEGATED)
                to[lane] = -to[lane];
            if (o.flags & INVERTED)
                to[lane] = ~to[lane];
        }
        return to;
    }
    const u32 *reals(Warp &w, const Operand &o, u32 slot) { // of a float
        if (o.kind == REGISTER && !(o.flags & (NEGATED | ABSOLUTE)))
            return o.index == ZERO ? w.registers[ZERO] : w.registers[o.index];
        u32 *const to = scratch_[slot];
        base(w, o, 0, to);
        for (u32 lane = 0; lane < 32; lane++)
            to[lane] = (o.flags & ABSOLUTE ? to[lane] & 0x7fffffff : to[lane]) ^ (o.flags & NEGATED ? 0x80000000 : 0);
        return to;
    }
    void words(Warp &w, const Operand &o, u64 *to, bool pair, bool is_signed = false) { // of 64 bits, or extended to it
        u32 low[32], high[32];
        base(w, o, 0, low);
        if (pair)
            base(w, o, 1, high);
        for (u32 lane = 0; lane < 32; lane++) {
            to[lane] = pair ? (u64)high[lane] << 32 | low[lane] : is_signed ? (u64)(i64)(i32)low[lane] : low[lane];
            if (o.flags & NEGATED)
                to[lane] = -to[lane];
            if (o.flags & INVERTED)
                to[lane] = ~to[lane];
        }
    }
    void doubles(Warp &w, const Operand &o, double *to) {
        u32 low[32], high[32];
        base(w, o, 0, low), base(w, o, 1, high);
        for (u32 lane = 0; lane < 32; lane++) {
            // A 64-bit immediate has its upper word only.
            u64 both = o.kind == IMMEDIATE ? (u64)low[lane] << 32 : (u64)high[lane] << 32 | low[lane];
            both = (o.flags & ABSOLUTE ? both & ~(1ull << 63) : both) ^ (o.flags & NEGATED ? 1ull << 63 : 0);
            to[lane] = cast<double>(both);
        }
    }
    static u32 lanes_of(const Warp &w, const Operand &o) { // of a predicate
        u32 found = ~0u;
        if (o.kind == PREDICATE)
            found = w.predicates[o.index];
        else if (o.kind == UNIFORM_PREDICATE)
            found = w.uniform_predicates >> o.index & 1 ? ~0u : 0;
        return o.flags & INVERTED ? ~found : found;
    }
    void put(Warp &w, const Operand &o, u32 mask, const u32 *values, u32 part = 0) {
        if (o.kind == UNIFORM) {
            if (o.index != ZERO)
                w.uniform[o.index + part] = values[std::countr_zero(mask)];
        } else if (o.kind == REGISTER && o.index != ZERO && mask == ~0u)
            std::memcpy(w.registers[o.index + part], values, sizeof(Lanes));
        else if (o.kind == REGISTER && o.index != ZERO)
            each(mask, [&](u32 lane) { w.registers[o.index + part][lane] = values[lane]; });
    }
    void put_pair(Warp &w, const Operand &o, u32 mask, const u64 *values) {
        u32 low[32], high[32];
        for (u32 lane = 0; lane < 32; lane++)
            low[lane] = (u32)values[lane], high[lane] = (u32)(values[lane] >> 32);
        put(w, o, mask, low), put(w, o, mask, high, 1);
    }
    void put_predicate(Warp &w, const Operand &o, u32 mask, u32 values) {
        if (o.kind == UNIFORM_PREDICATE) {
            if (o.index != TRUE)
                w.uniform_predicates =
                    (w.uniform_predicates & ~(1u << o.index)) | (values >> std::countr_zero(mask) & 1) << o.index;
        } else if (o.kind == PREDICATE && o.index != TRUE)
            w.predicates[o.index] = (w.predicates[o.index] & ~mask) | (values & mask);
    }

    // ---- control

    bool step(Warp &w) {
        const u32 able = w.alive & ~w.arrived;
        u32 ready = able & ~w.waiting;
        if (!ready) {
            if (!able || w.arrived)
                return false;
            ready = w.waiting, w.waiting = 0; // lanes that wait for others that never come continue
            each(ready, [&](u32 lane) { w.pc[lane]++; });
        }
        u32 pc = w.pc[0], mask = ready;
        if (std::memcmp(w.pc, w.pc + 1, sizeof w.pc - sizeof pc)) { // lanes have diverged
            pc = ~0u, mask = 0;
            each(ready, [&](u32 lane) { pc = std::min(pc, w.pc[lane]); });
            each(ready, [&](u32 lane) { mask |= w.pc[lane] == pc ? 1u << lane : 0; });
        }
        if (pc >= launch_.instructions)
            fail("control leaves the kernel");
        if (++w.steps > launch_.most_steps)
            throw Endless{w.index};
        const Instruction &i = launch_.code[pc];
        Operand guard{
            (u8)(i.guard_flags & BASE_UNIFORM ? UNIFORM_PREDICATE : PREDICATE), i.guard_flags, i.guard, 0, 0, 0};
        const u32 active = mask & lanes_of(w, guard);
        for (u32 board = 0; board < 6; board++)
            if (i.waits >> board & 1)
                for (u32 far = 0; far < 2; far++)
                    w.clock[far] = std::max(w.clock[far], w.ready[board][far]);
        counts_.issued[pc]++, counts_.lanes[pc] += std::popcount(active);
        u32 latency = 0;
        const bool flows = i.op >= FIRST_OF_FLOW && i.op <= LAST_OF_FLOW;
        if (flows)
            flow(w, i, pc, mask, active);
        else {
            if (active)
                latency = execute(w, i, pc, active);
            each(mask, [&](u32 lane) { w.pc[lane] = pc + 1; });
        }
        for (u32 far = 0; far < 2; far++) {
            if (i.scoreboard >= 0)
                w.ready[i.scoreboard][far] = std::max(
                    w.ready[i.scoreboard][far], w.clock[far] + (latency == FAR ? launch_.latency_far[far] : latency));
            w.clock[far] += std::max<u32>(i.stall, 1);
        }
        return true;
    }
    void meet(Warp &w, u32 barrier) { // opens a convergence barrier that all of its living lanes wait at
        const u32 members = w.barriers[barrier] & w.alive;
        u32 here = 0;
        each(w.waiting, [&](u32 lane) { here |= w.sync[lane] == barrier ? 1u << lane : 0; });
        if (here && (members & ~here) == 0) {
            w.waiting &= ~here;
            each(here, [&](u32 lane) { w.pc[lane]++; });
        }
    }
    void flow(Warp &w, const Instruction &i, u32 pc, u32 mask, u32 active) {
        const u32 fallen = mask & ~active;
        each(fallen, [&](u32 lane) { w.pc[lane] = pc + 1; });
        switch (i.op) {
        case EXIT:
            w.alive &= ~(active & lanes_of(w, i.p));
            each(active & w.alive, [&](u32 lane) { w.pc[lane] = pc + 1; });
            for (u32 barrier = 0; barrier < 16; barrier++)
                meet(w, barrier);
            return;
        case BRA: {
            const bool all =
                i.modifiers & DIVERGENT; // BRA.DIV jumps where lanes have diverged, which changes no result
            const u32 jumps = all ? 0 : active & lanes_of(w, i.p);
            each(active, [&](u32 lane) { w.pc[lane] = jumps >> lane & 1 ? (u32)i.target : pc + 1; });
            return;
        }
        case CALL:
            each(active, [&](u32 lane) { w.pc[lane] = (u32)i.target; });
            return;
        case RET:
            each(active, [&](u32 lane) { w.pc[lane] = w.registers[i.a.index][lane] / 16; });
            return;
        case BSSY:
            w.barriers[i.d.index] = active;
            each(active, [&](u32 lane) { w.pc[lane] = pc + 1; });
            return;
        case BSYNC:
            each(active, [&](u32 lane) { w.pc[lane] = pc, w.sync[lane] = i.d.index; });
            w.waiting |= active;
            meet(w, i.d.index);
            return;
        case BREAK:
            w.barriers[i.d.index] &= ~(active & lanes_of(w, i.p));
            each(active, [&](u32 lane) { w.pc[lane] = pc + 1; });
            meet(w, i.d.index);
            return;
        case BAR:
            if (!active)
                return;
            each(active, [&](u32 lane) {
                w.pc[lane] = pc;
                u32 count = 0;
                if (i.b.kind == IMMEDIATE)
                    count = (u32)i.b.value;
                else if (i.b.kind == REGISTER)
                    count = w.registers[i.b.index][lane];
                u32 which = i.a.kind == REGISTER ? w.registers[i.a.index][lane] : (u32)i.a.value;
                w.awaited[lane] = (which & 15) | count << 4;
            });
            w.arrived |= active;
            return;
        }
    }

    // ---- memory

    u64 address(Warp &w, const Operand &o, u32 lane) const {
        u64 found = (i64)o.value;
        if (o.index != ZERO) {
            u64 own = w.registers[o.index][lane];
            if (o.flags & PAIR)
                own |= (u64)w.registers[o.index + 1][lane] << 32;
            found += own << o.shift;
        }
        if (o.base != ZERO) {
            u64 own = w.uniform[o.base];
            if (o.flags & PAIR || o.flags & BASE_UNIFORM)
                own |= (u64)w.uniform[o.base + 1] << 32;
            found += own;
        }
        return found;
    }
    u8 *global(u64 at, u32 bytes, bool writes, u32 pc, const Buffer *&buffer) const {
        const u64 index = (at >> 40) - 1;
        if (index >= launch_.buffers)
            fail("instruction %u %s global memory at 0x%llx, which is no argument's", pc, writes ? "writes" : "reads",
                 (unsigned long long)at);
        buffer = &launch_.buffer[index];
        if (at < buffer->address || at + bytes > buffer->address + buffer->bytes)
            fail("instruction %u %s %lld bytes from the start of argument %llu, which has %llu", pc,
                 writes ? "writes" : "reads", (long long)(at - buffer->address), (unsigned long long)index,
                 (unsigned long long)buffer->bytes);
        return buffer->host + (at - buffer->address);
    }
    u8 *in_block(Warp &w, const Instruction &i, u64 at, u32 pc, u32 lane) {
        if (i.space == 2) {
            if (at + i.bytes > launch_.local_bytes)
                fail("instruction %u: local memory at 0x%llx", pc, (unsigned long long)at);
            return w.local.data() + (size_t)lane * launch_.local_bytes + at;
        }
        at &= 0xffffff;
        if (at + i.bytes > shared_.size())
            fail("instruction %u: shared memory at 0x%llx of %zu bytes", pc, (unsigned long long)at, shared_.size());
        return shared_.data() + at;
    }
    // Passes of shared memory: lanes are served 128 bytes at a time, and each bank gives one word a pass.
    u32 passes(const u64 *at, u32 mask, u32 bytes, bool atomic) const {
        const u32 group = bytes <= 4 ? 32 : 128 / bytes;
        u32 total = 0;
        for (u32 first = 0; first < 32; first += group) {
            u32 count[32] = {}, words[32][32];
            for (u32 lane = first; lane < first + group; lane++)
                if (mask >> lane & 1)
                    for (u64 word = at[lane] / 4; word <= (at[lane] + bytes - 1) / 4; word++) {
                        const u32 bank = word % 32;
                        bool known = false;
                        for (u32 k = 0; k < count[bank] && !known && !atomic; k++)
                            known = words[bank][k] == (u32)word;
                        if (!known && count[bank] < 32)
                            words[bank][count[bank]++] = (u32)word;
                    }
            total += *std::max_element(count, count + 32);
        }
        return total;
    }
    // Counts distinct sectors of 32 and lines of 128 bytes; whether the block reads some for the first time.
    bool touch(const u64 *at, u32 mask, u32 bytes, u32 pc, bool writes) {
        u64 sectors[64], lines[64];
        u32 count = 0, many = 0;
        each(mask, [&](u32 lane) {
            for (u64 sector = at[lane] / 32; sector <= (at[lane] + bytes - 1) / 32; sector++)
                if (std::find(sectors, sectors + count, sector) == sectors + count)
                    sectors[count++] = sector;
        });
        bool fresh = false;
        for (u32 k = 0; k < count; k++) {
            if (std::find(lines, lines + many, sectors[k] / 4) == lines + many)
                lines[many++] = sectors[k] / 4;
            const Buffer &buffer = launch_.buffer[(sectors[k] * 32 >> 40) - 1];
            u32 &seen = buffer.seen[(sectors[k] * 32 - buffer.address / 32 * 32) / 32];
            if (!writes && seen != number_ + 1)
                seen = number_ + 1, counts_.read++, fresh = true;
        }
        counts_.written += writes ? count : 0;
        counts_.sectors[pc] += count, counts_.lines[pc] += many;
        return fresh;
    }
    template <class T>
    static T combined(u32 how, T old, T given, T other) {
        return how == ADD         ? old + given
               : how == MINIMUM   ? std::min(old, given)
               : how == MAXIMUM   ? std::max(old, given)
               : how == EXCHANGE  ? given
               : how == COMPARE   ? (old == given ? other : old)
               : how == INCREMENT ? (old >= given ? T(0) : old + T(1))
               : how == DECREMENT ? (old == T(0) || old > given ? given : old - T(1))
               : how == COUNT     ? old + T(1)
                                  : old;
    }
    static u64 combined_bits(const Instruction &i, u64 old, u64 given, u64 other) {
        if (i.sub == ALL_BITS)
            return old & given;
        if (i.sub == ANY_BITS)
            return old | given;
        if (i.sub == ODD_BITS)
            return old ^ given;
        if (i.joined == 1) // of float
            return bits_of(combined<float>(i.sub, number((u32)old), number((u32)given), number((u32)other)));
        if (i.joined == 2)
            return cast<u64>(combined<double>(i.sub, cast<double>(old), cast<double>(given), cast<double>(other)));
        if (i.modifiers & SIGNED_LOAD)
            return i.bytes == 8 ? (u64)combined<i64>(i.sub, (i64)old, (i64)given, (i64)other)
                                : (u32)combined<i32>(i.sub, (i32)old, (i32)given, (i32)other);
        return i.bytes == 8 ? combined<u64>(i.sub, old, given, other)
                            : combined<u32>(i.sub, (u32)old, (u32)given, (u32)other);
    }
    u32 access(Warp &w, const Instruction &i, u32 pc, u32 mask) {
        const bool loads = i.op == LOAD || i.op == COPY, stores = i.op == STORE, atomic = i.op == ATOMIC;
        const Operand &from = i.op == COPY ? i.b : i.a;
        u64 at[32];
        each(mask, [&](u32 lane) {
            at[lane] = address(w, from, lane);
            const u32 aligned = i.bytes;
            if (at[lane] % aligned)
                fail("instruction %u accesses %u bytes at the address 0x%llx, which is no multiple", pc, i.bytes,
                     (unsigned long long)at[lane]);
        });
        u8 *host[32];
        each(mask, [&](u32 lane) {
            const Buffer *buffer = nullptr;
            host[lane] = i.space ? in_block(w, i, at[lane], pc, lane) : global(at[lane], i.bytes, !loads, pc, buffer);
        });
        if (loads) {
            each(mask, [&](u32 lane) {
                if (i.op == COPY) {
                    const u64 to = address(w, i.a, lane);
                    Instruction shared = i;
                    shared.space = 1;
                    std::memcpy(in_block(w, shared, to, pc, lane), host[lane], i.bytes);
                    return;
                }
                u32 value[4] = {};
                std::memcpy(value, host[lane], i.bytes);
                if (i.modifiers & SIGNED_LOAD)
                    value[0] = i.bytes == 1 ? (u32)(i32)(signed char)value[0] : (u32)(i32)(short)value[0];
                for (u32 part = 0; part < std::max(i.bytes / 4, 1); part++)
                    written(w, i.d, part)[lane] = value[part];
            });
        } else if (stores) {
            each(mask, [&](u32 lane) {
                u32 value[4] = {};
                for (u32 part = 0; part < std::max(i.bytes / 4, 1); part++)
                    value[part] = i.b.index == ZERO ? 0 : w.registers[i.b.index + part][lane];
                std::memcpy(host[lane], value, i.bytes);
            });
        } else if (atomic)
            each(mask, [&](u32 lane) {
                u64 old = 0, given = 0, other = 0;
                std::memcpy(&old, host[lane], i.bytes);
                const auto word = [&](const Operand &o) -> u64 {
                    if (o.kind != REGISTER || o.index == ZERO)
                        return o.kind == IMMEDIATE ? (u64)(i64)o.value : 0;
                    return w.registers[o.index][lane] | (i.bytes == 8 ? (u64)w.registers[o.index + 1][lane] << 32 : 0);
                };
                given = word(i.b), other = word(i.c);
                const u64 made = combined_bits(i, old, given, other);
                std::memcpy(host[lane], &made, i.bytes);
                if (i.d.kind == REGISTER && i.d.index != ZERO) {
                    w.registers[i.d.index][lane] = (u32)old;
                    if (i.bytes == 8)
                        w.registers[i.d.index + 1][lane] = (u32)(old >> 32);
                }
            });
        if (i.space == 1) {
            const u32 count = passes(at, mask, i.bytes, atomic);
            counts_.wavefronts[pc] += count;
            return launch_.latency_shared + count;
        }
        if (i.space == 2) { // local memory is interleaved: a word of all lanes is a line
            counts_.sectors[pc] += 4 * std::max(i.bytes / 4, 1), counts_.lines[pc] += std::max(i.bytes / 4, 1);
            return loads ? launch_.latency_shared : 1;
        }
        const bool fresh = touch(at, mask, i.bytes, pc, !loads);
        if (i.op == COPY) {
            u64 to[32];
            each(mask, [&](u32 lane) { to[lane] = address(w, i.a, lane); });
            counts_.wavefronts[pc] += passes(to, mask, i.bytes, false);
        }
        return loads || i.d.kind == REGISTER ? (fresh ? FAR : launch_.latency_near) : 1;
    }

    // ---- computations

    template <class T>
    static bool compares(u32 how, T a, T b) {
        return how == LESS       ? a < b
               : how == EQUAL    ? a == b
               : how == AT_MOST  ? a <= b
               : how == GREATER  ? a > b
               : how == UNEQUAL  ? a != b
               : how == AT_LEAST ? a >= b
                                 : how == ALWAYS;
    }
    static bool holds(u32 how, double a, double b, bool unordered) {
        if (std::isnan(a) || std::isnan(b))
            return how == NUMBERS ? false : how == NO_NUMBERS ? true : unordered;
        return how == NUMBERS || compares(how, a, b);
    }
    void set_predicates(Warp &w, const Instruction &i, u32 mask, u32 found) {
        const u32 given = lanes_of(w, i.p);
        const auto join = [&](u32 value) {
            return i.joined == 1 ? value | given : i.joined == 2 ? value ^ given : value & given;
        };
        put_predicate(w, i.d, mask, join(found)), put_predicate(w, i.e, mask, join(~found));
    }
    static u32 looked_up(u32 table, u32 a, u32 b, u32 c) {
        u32 found = 0;
        for (u32 k = 0; k < 8; k++)
            if (table >> k & 1)
                found |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        return found;
    }
    u32 special(const Warp &w, u32 which, u32 lane) const {
        const u32 thread = 32 * w.index + lane, *block = launch_.block;
        const u32 bit = 1u << lane, lower = bit - 1;
        return which == TID_X     ? thread % block[0]
               : which == TID_Y   ? thread / block[0] % block[1]
               : which == TID_Z   ? thread / block[0] / block[1]
               : which == CTAID_X ? place_[0]
               : which == CTAID_Y ? place_[1]
               : which == CTAID_Z ? place_[2]
               : which == LANEID  ? lane
               : which == EQMASK  ? bit
               : which == LTMASK  ? lower
               : which == LEMASK  ? lower | bit
               : which == GTMASK  ? ~(lower | bit)
               : which == GEMASK  ? ~lower
               : which == CLOCK   ? (u32)w.clock[0]
                                  : 0;
    }
    static float approximate(u32 which, float x) {
        const double turns = x * 6.283185307179586; // of sines and cosines
        return which == RCP    ? 1 / x
               : which == RSQ  ? 1 / std::sqrt(x)
               : which == EX2  ? std::exp2(x)
               : which == LG2  ? std::log2(x)
               : which == SIN  ? (float)std::sin(turns)
               : which == COS  ? (float)std::cos(turns)
               : which == SQRT ? std::sqrt(x)
               : which == TANH ? std::tanh(x)
                               : x;
    }
    static double rounded(double x, u32 how) {
        return how == TO_ZERO ? std::trunc(x)
               : how == DOWN  ? std::floor(x)
               : how == UP    ? std::ceil(x)
                              : std::nearbyint(x);
    }
    float part_of(const Instruction &i, u32 word, const Operand &o, u32 upper) const {
        const u32 which = o.flags & LOW ? 0 : o.flags & HIGH ? 1 : upper;
        const u16 half = (u16)(word >> 16 * which);
        float value = i.modifiers & BFLOAT ? brain_number(half) : half_number(half);
        value = o.flags & ABSOLUTE ? std::fabs(value) : value;
        return o.flags & NEGATED ? -value : value;
    }
    u16 packed(const Instruction &i, float value) const {
        return i.modifiers & BFLOAT ? brain_bits(value) : half_bits(value);
    }

    // Writes the word that `one` gives of three words, by lane; returns the latency.
    template <class One>
    u32 computed(Warp &w, const Instruction &i, u32 mask, u32 latency, One one) {
        Lanes out;
        const u32 *a = bits(w, i.a, 0), *b = bits(w, i.b, 1), *c = bits(w, i.c, 2);
        each(mask, [&](u32 lane) { out[lane] = one(a[lane], b[lane], c[lane], lane); });
        put(w, i.d, mask, out);
        return latency;
    }
    void any_floats(Warp &w, const Instruction &i, double *to) { // of the 2, 4 or 8 bytes in `joined`
        if (i.joined == 8)
            return doubles(w, i.a, to);
        const u32 *x = i.joined == 2 ? bits(w, i.a, 0) : reals(w, i.a, 0);
        for (u32 lane = 0; lane < 32; lane++)
            to[lane] = i.joined == 2 ? part_of(i, x[lane], i.a, 0) : number(x[lane]);
    }
    u32 converted(Warp &w, const Instruction &i, u32 mask, u32 bytes, const u64 *values) {
        Lanes out;
        if (bytes == 8)
            put_pair(w, i.d, mask, values);
        else {
            std::copy_n(values, 32, out);
            put(w, i.d, mask, out);
        }
        return 14;
    }

    u32 execute(Warp &w, const Instruction &i, u32 pc, u32 mask) {
        Lanes out;
        u64 wide[32], other[32];
        const bool is_unsigned = i.modifiers & IS_UNSIGNED;
        switch (i.op) {
        case NOP:
            return 0;
        case IADD3: {
            const u32 *a = bits(w, i.a, 0), *b = bits(w, i.b, 1), *c = bits(w, i.c, 2);
            const bool carries = i.modifiers & CARRIES;
            const u32 p = carries ? lanes_of(w, i.p) : 0, q = carries ? lanes_of(w, i.q) : 0;
            u32 first = 0, second = 0;
            each(mask, [&](u32 lane) {
                // A difference is a sum with the inverted number and one, which is what carries out.
                const auto term = [&](const Operand &o, u32 value) -> u64 {
                    return o.flags & NEGATED && o.kind != IMMEDIATE && value == 0 ? 1ull << 32 : value;
                };
                const u64 sum =
                    term(i.a, a[lane]) + term(i.b, b[lane]) + term(i.c, c[lane]) + (p >> lane & 1) + (q >> lane & 1);
                out[lane] = (u32)sum;
                first |= (u32)(sum >> 32 >= 1) << lane, second |= (u32)(sum >> 32 >= 2) << lane;
            });
            put(w, i.d, mask, out);
            put_predicate(w, i.e, mask, first), put_predicate(w, i.f, mask, second);
            return 4;
        }
        case IADD_64:
            words(w, i.a, wide, true), words(w, i.b, other, i.b.kind != IMMEDIATE, true);
            each(mask, [&](u32 lane) { wide[lane] += other[lane]; });
            if (i.c.kind != NOTHING && i.c.index != ZERO) {
                words(w, i.c, other, true);
                each(mask, [&](u32 lane) { wide[lane] += other[lane]; });
            }
            put_pair(w, i.d, mask, wide);
            return 4;
        case IMAD: {
            const u32 *a = bits(w, i.a, 0), *b = bits(w, i.b, 1);
            const u32 p = i.modifiers & CARRIES ? lanes_of(w, i.p) : 0;
            if (i.modifiers & (WIDE | UPPER)) {
                words(w, i.c, other, true);
                u32 carry = 0;
                each(mask, [&](u32 lane) {
                    const u64 product =
                        is_unsigned ? (u64)a[lane] * b[lane] : (u64)((i64)(i32)a[lane] * (i64)(i32)b[lane]);
                    wide[lane] = product + other[lane] + (p >> lane & 1);
                    carry |= (u32)(wide[lane] < product) << lane;
                    out[lane] = (u32)(wide[lane] >> 32);
                });
                if (i.modifiers & WIDE)
                    put_pair(w, i.d, mask, wide);
                else {
                    const u32 *c = bits(w, i.c, 2);
                    each(mask, [&](u32 lane) {
                        const u64 product =
                            is_unsigned ? (u64)a[lane] * b[lane] : (u64)((i64)(i32)a[lane] * (i64)(i32)b[lane]);
                        out[lane] = (u32)(product >> 32) + c[lane];
                    });
                    put(w, i.d, mask, out);
                }
                put_predicate(w, i.e, mask, carry);
                return 5;
            }
            return computed(w, i, mask, 4, [&](u32 x, u32 y, u32 z, u32 lane) { return x * y + z + (p >> lane & 1); });
        }
        case LEA: {
            const u32 *a = bits(w, i.a, 0), *b = bits(w, i.b, 1);
            const u32 shift = (u32)i.q.value, p = i.modifiers & CARRIES ? lanes_of(w, i.p) : 0;
            u32 carry = 0;
            const u32 *c = i.modifiers & UPPER && !(i.modifiers & SIGN_EXTENDED) ? bits(w, i.c, 2) : a;
            each(mask, [&](u32 lane) {
                u64 shifted = a[lane];
                if (i.modifiers & UPPER) {
                    const u64 whole =
                        i.modifiers & SIGN_EXTENDED ? (u64)(i64)(i32)a[lane] : (u64)c[lane] << 32 | a[lane];
                    shifted = (u32)(whole << shift >> 32);
                } else
                    shifted = (u32)(a[lane] << shift);
                const u64 sum = shifted + b[lane] + (p >> lane & 1);
                out[lane] = (u32)sum, carry |= (u32)(sum >> 32) << lane;
            });
            put(w, i.d, mask, out), put_predicate(w, i.e, mask, carry);
            return 4;
        }
        case LOP3: {
            const u32 *a = bits(w, i.a, 0), *b = bits(w, i.b, 1), *c = bits(w, i.c, 2);
            const u32 p = lanes_of(w, i.p);
            u32 any = 0;
            each(mask, [&](u32 lane) {
                out[lane] = looked_up(i.sub, a[lane], b[lane], c[lane]);
                any |= (u32)(out[lane] != 0) << lane;
            });
            put(w, i.d, mask, out);
            put_predicate(w, i.e, mask, i.modifiers & WITH_AND ? any & p : any | p);
            return 4;
        }
        case PLOP3: {
            const u32 a = lanes_of(w, i.a), b = lanes_of(w, i.b), c = lanes_of(w, i.c);
            put_predicate(w, i.d, mask, looked_up(i.sub, a, b, c));
            put_predicate(w, i.e, mask, looked_up(i.joined, a, b, c));
            return 4;
        }
        case SHF:
            return computed(w, i, mask, 4, [&](u32 a, u32 b, u32 c, u32) {
                const u64 both = (u64)c << 32 | a;
                const u32 most = i.modifiers & OF_64 ? 64 : 32, by = i.modifiers & WRAPS ? b % most : std::min(b, most);
                u64 moved = by >= 64 ? 0 : both << by;
                if (i.modifiers & RETURNS) // to the right
                    moved = is_unsigned ? (by >= 64 ? 0 : both >> by) : (u64)((i64)both >> std::min(by, 63u));
                return i.modifiers & UPPER ? (u32)(moved >> 32) : (u32)moved;
            });
        case ISETP: {
            const u32 p = i.modifiers & EXTENDED ? lanes_of(w, i.q) : 0;
            u32 found = 0;
            if (i.modifiers & OF_64) {
                words(w, i.a, wide, true), words(w, i.b, other, i.b.kind != IMMEDIATE, true);
                each(mask, [&](u32 lane) {
                    found |= (u32)(is_unsigned ? compares(i.sub, wide[lane], other[lane])
                                               : compares(i.sub, (i64)wide[lane], (i64)other[lane]))
                             << lane;
                });
                set_predicates(w, i, mask, found);
                return 6;
            }
            const u32 *a = bits(w, i.a, 0), *b = bits(w, i.b, 1);
            each(mask, [&](u32 lane) {
                bool is;
                if (i.modifiers & EXTENDED && a[lane] == b[lane])
                    is = p >> lane & 1; // the lower words decide
                else
                    is = is_unsigned ? compares(i.sub, a[lane], b[lane]) : compares(i.sub, (i32)a[lane], (i32)b[lane]);
                found |= (u32)is << lane;
            });
            set_predicates(w, i, mask, found);
            return 6;
        }
        case FSETP:
        case FSET: {
            const u32 *a = reals(w, i.a, 0), *b = reals(w, i.b, 1);
            u32 found = 0;
            each(mask, [&](u32 lane) {
                found |= (u32)holds(i.sub, number(a[lane]), number(b[lane]), i.modifiers & UNORDERED) << lane;
            });
            if (i.op == FSETP)
                set_predicates(w, i, mask, found);
            else {
                found &= lanes_of(w, i.p);
                each(mask, [&](u32 lane) {
                    out[lane] = found >> lane & 1 ? (i.modifiers & UPPER_RESULT ? 0x3f800000 : ~0u) : 0;
                });
                put(w, i.d, mask, out);
            }
            return 6;
        }
        case DSETP: {
            double a[32], b[32];
            doubles(w, i.a, a), doubles(w, i.b, b);
            u32 found = 0;
            each(mask,
                 [&](u32 lane) { found |= (u32)holds(i.sub, a[lane], b[lane], i.modifiers & UNORDERED) << lane; });
            set_predicates(w, i, mask, found);
            return 8;
        }
        case SEL:
        case FSEL: {
            const u32 *a = i.op == SEL ? bits(w, i.a, 0) : reals(w, i.a, 0);
            const u32 *b = i.op == SEL ? bits(w, i.b, 1) : reals(w, i.b, 1), p = lanes_of(w, i.p);
            each(mask, [&](u32 lane) { out[lane] = p >> lane & 1 ? a[lane] : b[lane]; });
            put(w, i.d, mask, out);
            if (i.modifiers & OF_64) {
                const u32 *upper = bits(w, i.a, 2, 1), *lower = bits(w, i.b, 3, 1);
                each(mask, [&](u32 lane) { out[lane] = p >> lane & 1 ? upper[lane] : lower[lane]; });
                put(w, i.d, mask, out, 1);
            }
            return 4;
        }
        case IMNMX: {
            const u32 p = lanes_of(w, i.p);
            return computed(w, i, mask, 4, [&](u32 a, u32 b, u32 c, u32 lane) {
                const bool of_sum = i.modifiers & EXTENDED;
                const u32 x = of_sum ? a + b : a, y = of_sum ? c : b;
                const bool less = is_unsigned ? x < y : (i32)x < (i32)y;
                return less == (bool)(p >> lane & 1) ? x : y;
            });
        }
        case FMNMX: {
            const u32 *a = reals(w, i.a, 0), *b = reals(w, i.b, 1), p = lanes_of(w, i.p);
            each(mask, [&](u32 lane) {
                const float x = number(a[lane]), y = number(b[lane]);
                out[lane] = bits_of(p >> lane & 1 ? std::fmin(x, y) : std::fmax(x, y));
            });
            put(w, i.d, mask, out);
            return 4;
        }
        case MOV:
        case TO_UNIFORM_REGISTER:
            put(w, i.d, mask, bits(w, i.a, 0));
            if (i.modifiers & OF_64)
                put(w, i.d, mask, bits(w, i.a, 1, 1), 1);
            return i.op == MOV ? 4 : 12;
        case SPECIAL:
            each(mask, [&](u32 lane) { out[lane] = i.a.index == NO_SPECIAL ? 0 : special(w, i.a.index, lane); });
            put(w, i.d, mask, out);
            if (i.modifiers & OF_64) {
                std::fill_n(out, 32, 0);
                put(w, i.d, mask, out, 1);
            }
            return 20;
        case LOAD_CONSTANT:
            for (u32 part = 0; part < std::max(i.bytes / 4, 1); part++) {
                const u32 *a = bits(w, i.a, 0, part);
                if (i.bytes < 4)
                    each(mask, [&](u32 lane) {
                        const u32 kept = i.bytes == 1 ? a[lane] & 0xff : a[lane] & 0xffff;
                        out[lane] = !(i.modifiers & SIGNED_LOAD) ? kept
                                    : i.bytes == 1               ? (u32)(i32)(signed char)kept
                                                                 : (u32)(i32)(short)kept;
                    });
                put(w, i.d, mask, i.bytes < 4 ? out : a, part);
            }
            return 30;
        case PRMT:
            return computed(w, i, mask, 4, [](u32 a, u32 b, u32 c, u32) {
                const u64 both = (u64)c << 32 | a;
                u32 made = 0;
                for (u32 k = 0; k < 4; k++) {
                    const u32 which = b >> 4 * k & 15, byte = (u32)(both >> 8 * (which & 7)) & 0xff;
                    made |= (which & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * k;
                }
                return made;
            });
        case POPC:
            return computed(w, i, mask, 12, [](u32 a, u32, u32, u32) { return (u32)std::popcount(a); });
        case IABS:
            return computed(w, i, mask, 12, [](u32 a, u32, u32, u32) { return (i32)a < 0 ? -a : a; });
        case FLO:
            return computed(w, i, mask, 12, [&](u32 a, u32, u32, u32) {
                const u32 x = !is_unsigned && (i32)a < 0 ? ~a : a, before = std::countl_zero(x);
                return x == 0 ? ~0u : i.modifiers & EXTENDED ? before : 31 - before;
            });
        case BREV:
            return computed(w, i, mask, 12, [](u32 a, u32, u32, u32) {
                u32 made = 0;
                for (u32 k = 0; k < 32; k++)
                    made |= (a >> k & 1) << (31 - k);
                return made;
            });
        case SGXT:
            return computed(w, i, mask, 4, [&](u32 a, u32 b, u32, u32) -> u32 {
                const u32 rest = 32 - std::min(b, 32u);
                return rest == 32 ? 0 : is_unsigned ? a << rest >> rest : (u32)((i32)(a << rest) >> rest);
            });
        case BMSK:
            return computed(w, i, mask, 4, [](u32 a, u32 b, u32, u32) {
                return a >= 32 ? 0 : (u32)((1ull << std::min(b, 32u)) - 1 << a);
            });
        case FADD:
        case FMUL:
        case FFMA: {
            const u32 *a = reals(w, i.a, 0), *b = reals(w, i.b, 1);
            const u32 *c = i.op == FFMA ? reals(w, i.c, 2) : a;
            const auto compute = [&](auto one) { // of all lanes: `put` leaves inactive ones as they are
                for (u32 lane = 0; lane < 32; lane++)
                    out[lane] = bits_of(one(number(a[lane]), number(b[lane]), number(c[lane])));
            };
            if (i.op == FADD)
                compute([](float x, float y, float) { return x + y; });
            else if (i.op == FMUL)
                compute([](float x, float y, float) { return x * y; });
            else
                compute([](float x, float y, float z) { return std::fma(x, y, z); });
            if (i.modifiers & WRAPS) // saturates
                each(mask, [&](u32 lane) {
                    const float made = number(out[lane]);
                    out[lane] = bits_of(std::isnan(made) ? 0 : std::clamp(made, 0.0f, 1.0f));
                });
            put(w, i.d, mask, out);
            return 4;
        }
        case DADD:
        case DMUL:
        case DFMA: {
            double a[32], b[32], c[32];
            doubles(w, i.a, a), doubles(w, i.b, b), doubles(w, i.c, c);
            each(mask, [&](u32 lane) {
                const double made = i.op == DADD   ? a[lane] + b[lane]
                                    : i.op == DMUL ? a[lane] * b[lane]
                                                   : std::fma(a[lane], b[lane], c[lane]);
                wide[lane] = cast<u64>(made);
            });
            put_pair(w, i.d, mask, wide);
            return 8;
        }
        case MUFU: {
            const u32 *a = reals(w, i.a, 0);
            each(mask, [&](u32 lane) {
                if (i.modifiers & OF_64) { // the upper word of a double's approximation
                    const double made = i.sub == RCP ? 1 / cast<double>((u64)a[lane] << 32)
                                                     : 1 / std::sqrt(cast<double>((u64)a[lane] << 32));
                    out[lane] = (u32)(cast<u64>(made) >> 32);
                } else
                    out[lane] = bits_of(approximate(i.sub, number(a[lane])));
            });
            put(w, i.d, mask, out);
            return 20;
        }
        case FCHK: { // whether a quotient needs the slow path
            const u32 *a = reals(w, i.a, 0), *b = reals(w, i.b, 1);
            u32 found = 0;
            each(mask, [&](u32 lane) {
                const int x = (int)(a[lane] >> 23 & 255), y = (int)(b[lane] >> 23 & 255);
                const bool slow = y < 2 || y > 251 || x == 255 || x < 24 || x - y > 125 || y - x > 124;
                found |= (u32)(slow && a[lane] << 1) << lane;
            });
            put_predicate(w, i.d, mask, found);
            return 8;
        }
        case TO_FLOAT: // from integers
            words(w, i.a, wide, i.modifiers & OF_64, !is_unsigned);
            each(mask, [&](u32 lane) {
                u64 x = wide[lane];
                if (i.bytes < 4) {
                    const u32 rest = 64 - 8 * i.bytes;
                    x = (u64)(u32)(x >> 8 * i.joined) << rest;
                    x = is_unsigned ? x >> rest : (u64)((i64)x >> rest);
                }
                const double value = is_unsigned ? (double)x : (double)(i64)x;
                wide[lane] = i.sub == 8   ? cast<u64>(value)
                             : i.sub == 2 ? half_bits((float)value)
                                          : bits_of(is_unsigned ? (float)x : (float)(i64)x);
            });
            return converted(w, i, mask, i.sub, wide);
        case TO_INTEGER: {
            double a[32];
            any_floats(w, i, a);
            each(mask, [&](u32 lane) {
                const double x = std::isnan(a[lane]) ? 0 : rounded(a[lane], i.sub);
                if (i.bytes == 8)
                    wide[lane] = is_unsigned ? (u64)std::clamp(x, 0.0, 18446744073709549568.0)
                                             : (u64)(i64)std::clamp(x, -9223372036854775808.0, 9223372036854774784.0);
                else
                    wide[lane] = is_unsigned ? (u32)std::clamp(x, 0.0, 4294967295.0)
                                             : (u32)(i32)std::clamp(x, -2147483648.0, 2147483647.0);
            });
            return converted(w, i, mask, i.bytes, wide);
        }
        case CONVERT: { // between floats, or to a whole number
            double a[32];
            any_floats(w, i, a);
            each(mask, [&](u32 lane) {
                const double x = i.sub == NEAREST ? a[lane] : rounded(a[lane], i.sub);
                wide[lane] = i.bytes == 8 ? cast<u64>(x) : i.bytes == 2 ? packed(i, (float)x) : bits_of((float)x);
            });
            return converted(w, i, mask, i.bytes, wide);
        }
        case PACK: { // two floats into halves
            const u32 *a = reals(w, i.a, 0), *b = reals(w, i.b, 1);
            each(mask,
                 [&](u32 lane) { out[lane] = (u32)packed(i, number(a[lane])) << 16 | packed(i, number(b[lane])); });
            put(w, i.d, mask, out);
            return 6;
        }
        case HADD2:
        case HMUL2:
        case HFMA2: {
            const u32 *a = words_of(w, i.a, 0), *b = words_of(w, i.b, 1);
            const u32 *c = i.op == HFMA2 ? words_of(w, i.c, 2) : a;
            each(mask, [&](u32 lane) {
                u32 made = 0;
                for (u32 upper = 0; upper < 2; upper++) {
                    const float x = part_of(i, a[lane], i.a, upper), y = part_of(i, b[lane], i.b, upper);
                    const float z = i.op == HADD2   ? x + y
                                    : i.op == HMUL2 ? x * y
                                                    : std::fma(x, y, part_of(i, c[lane], i.c, upper));
                    if (i.bytes == 4) { // to float
                        made = bits_of(z);
                        break;
                    }
                    made |= (u32)packed(i, z) << 16 * upper;
                }
                out[lane] = made;
            });
            put(w, i.d, mask, out);
            return 5;
        }
        case SHFL: {
            const u32 *a = bits(w, i.a, 0);
            Lanes values, by, clamp;
            std::memcpy(values, a, sizeof values);
            std::memcpy(by, bits(w, i.b, 1), sizeof by);
            std::memcpy(clamp, bits(w, i.c, 2), sizeof clamp);
            u32 valid = 0;
            each(mask, [&](u32 lane) {
                const u32 segment = clamp[lane] >> 8 & 31, most = (lane & segment) | (clamp[lane] & 31 & ~segment);
                const i32 from = i.sub == SHUFFLE_UP          ? (i32)lane - (i32)by[lane]
                                 : i.sub == SHUFFLE_DOWN      ? (i32)(lane + by[lane])
                                 : i.sub == SHUFFLE_BUTTERFLY ? (i32)(lane ^ by[lane])
                                                              : (i32)((lane & segment) | (by[lane] & ~segment & 31));
                const bool inside = i.sub == SHUFFLE_UP ? from >= (i32)most : from <= (i32)most;
                out[lane] = values[inside ? (u32)from & 31 : lane];
                valid |= (u32)inside << lane;
            });
            put(w, i.d, mask, out), put_predicate(w, i.e, mask, valid);
            counts_.wavefronts[pc]++;
            return 24;
        }
        case VOTE: {
            const u32 p = lanes_of(w, i.p) & mask;
            const bool is = i.sub == 0 ? p == mask : i.sub == 1 ? p != 0 : p == 0 || p == mask;
            std::fill_n(out, 32, p);
            put(w, i.d, mask, out), put_predicate(w, i.e, mask, is ? ~0u : 0);
            return 8;
        }
        case MATCH: {
            const u32 *a = bits(w, i.a, 0);
            each(mask, [&](u32 lane) {
                out[lane] = 0;
                each(mask, [&](u32 one) { out[lane] |= (u32)(a[one] == a[lane]) << one; });
            });
            put(w, i.d, mask, out);
            return 24;
        }
        case REDUX: {
            const u32 *a = bits(w, i.a, 0);
            u32 made = a[std::countr_zero(mask)];
            each(mask & (mask - 1), [&](u32 lane) {
                Instruction as = i;
                as.bytes = 4;
                made = (u32)combined_bits(as, made, a[lane], 0);
            });
            std::fill_n(out, 32, made);
            put(w, i.d, mask, out);
            return 24;
        }
        case LOAD:
        case STORE:
        case ATOMIC:
        case COPY:
            return access(w, i, pc, mask);
        case MOVE_BARRIER:
            if (i.d.kind == BARRIER) {
                u32 value = 0;
                if (i.a.kind == BARRIER)
                    value = w.barriers[i.a.index];
                else if (i.a.kind == REGISTER && i.a.index != ZERO)
                    value = w.registers[i.a.index][std::countr_zero(mask)];
                else if (i.a.kind == IMMEDIATE)
                    value = (u32)i.a.value;
                w.barriers[i.d.index] = value;
            } else {
                std::fill_n(out, 32, w.barriers[i.a.index]);
                put(w, i.d, mask, out);
            }
            if (i.modifiers & EXTENDED && i.a.kind == BARRIER) // and clears
                w.barriers[i.a.index] = 0;
            return 8;
        case TO_PREDICATES: {
            const u32 *a = bits(w, i.a, 0);
            each(mask, [&](u32 lane) {
                for (u32 k = 0; k < 7; k++)
                    if ((u32)i.b.value >> k & 1)
                        w.predicates[k] = (w.predicates[k] & ~(1u << lane)) | (a[lane] >> k & 1) << lane;
            });
            return 12;
        }
        case FROM_PREDICATES: {
            const u32 *a = bits(w, i.a, 0);
            each(mask, [&](u32 lane) {
                out[lane] = a[lane] & ~(u32)i.b.value;
                for (u32 k = 0; k < 7; k++)
                    out[lane] |= (w.predicates[k] >> lane & 1) << k & (u32)i.b.value;
            });
            put(w, i.d, mask, out);
            return 8;
        }
        case DOT:
            return computed(w, i, mask, 5, [&](u32 a, u32 b, u32 c, u32) {
                for (u32 k = 0; k < 32; k += 8)
                    c += is_unsigned ? (u32)(u8)(a >> k) * (u8)(b >> k)
                                     : (u32)((signed char)(a >> k) * (signed char)(b >> k));
                return c;
            });
        }
        fail("instruction %u has no meaning here", pc);
    }
    const u32 *words_of(Warp &w, const Operand &o, u32 slot) { // of halves: signs are applied to each
        if (o.kind == REGISTER)
            return o.index == ZERO ? w.registers[ZERO] : w.registers[o.index];
        base(w, o, 0, scratch_[slot]);
        return scratch_[slot];
    }
};

extern "C" int count_block(const Launch *launch, u32 number, Counts *counts, char *message, u32 bytes) {
    try {
        Block(*launch, number, *counts).run();
        return 0;
    } catch (const Failure &failure) {
        std::snprintf(message, bytes, "%s", failure.text);
        return 1;
    } catch (const Endless &endless) {
        std::snprintf(message, bytes, "warp %u of block %u takes more than %u instructions", endless.warp, number,
                      launch->most_steps);
        return 2;
    }
}
