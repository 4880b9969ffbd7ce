// The scheduler, asynchronous copies and instructions of a whole warp, as the PTX ISA 8.x defines them.
//
// Compiled with -frounding-math: the directed roundings set the processor's mode.
#include "cluster.h"
#include "lanes.h"
#include "order.h"
#include "products.h"
#include "rounding.h"
#include "scaled.h"
#include "tensor.h"
#include "tensor_products.h"
#include <cstdarg>
#include <cstdio>
#include <random>
#include <string>

static const Thread *running = nullptr; // the thread that executes instructions

void fault(const char *kind, const char *format, ...) {
    Fault found{kind, ""};
    va_list arguments;
    va_start(arguments, format);
    const u32 length = std::vsnprintf(found.text, sizeof found.text, format, arguments);
    va_end(arguments);
    if (running && running->line && length < sizeof found.text)
        std::snprintf(found.text + length, sizeof found.text - length, ", at line %u by thread %u of block %u",
                      running->line, running->index, running->block->index);
    throw found;
}

// ---- Asynchronous copies

static void deliver(Thread &t, const Copy &copy) {
    u8 *to = shared_at(t, copy.to, copy.bytes, true);
    std::memset(to, 0, copy.bytes);
    if (copy.read)
        std::memcpy(to, copy.from, copy.read);
}
void copy_async(Thread &t, u32 to, u64 from, u32 bytes, u32 read, const char *text) {
    aligned_to(to, bytes, "shared");
    if (read)
        aligned_to(from, bytes, "global"); // the ISA requires no alignment where nothing is read
    if (read > bytes)
        fault("invalid", "cp.async of %u bytes reads %u", bytes, read);
    shared_of(*t.block, to, bytes);
    Copy copy{to, bytes, read, t.committed, 0, read ? global_at(t, from, read, false) : nullptr};
    if (t.causality) {
        copy.operation = t.causality->issue(t.slot, text, false);
        t.causality->covers_shared(copy.operation, t.block->resident, to - SHARED_BASE, bytes, true);
        if (read)
            t.causality->covers_global(copy.operation, from, read, false);
    }
    if (!t.block->launch->late)
        deliver(t, copy);
    t.copies.push_back(copy);
}
void commit_copies(Thread &t) {
    t.committed++;
}
// Wait until at most `groups_left` of the latest groups are in flight, or for all copies, including uncommitted ones.
void await_copies(Thread &t, u32 groups_left, bool all) {
    size_t left = 0;
    for (const Copy &copy : t.copies)
        if (all || (copy.group < t.committed && t.committed - copy.group > groups_left)) {
            if (t.block->launch->late)
                deliver(t, copy);
            if (t.causality)
                t.causality->finish(copy.operation, t.slot);
        } else {
            t.copies[left++] = copy;
        }
    t.copies.resize(left);
}

// ---- The scheduler

namespace {
class Scheduler {
  public:
    Scheduler(const Entry &entry, const Launch &launch) : entry_(entry), launch_(launch), random_(launch.order) {
        if (launch.ordered)
            causality_ = std::make_unique<Causality>(entry, launch);
    }

    void run() {
        if (launch_.threads % 32 || !launch_.threads || launch_.threads > 1024)
            fault("invalid", "%u threads per block", launch_.threads);
        const u32 cluster = launch_.cluster;
        if (launch_.grid % cluster)
            fault("invalid", "%u blocks in clusters of %u", launch_.grid, cluster);
        std::vector<u32> order;
        for (u32 each : ordered(launch_.grid / cluster))
            for (u32 rank = 0; rank < cluster; rank++)
                order.push_back(each * cluster + rank);
        const u32 resident = launch_.together ? launch_.grid : cluster;
        if (launch_.together)
            std::sort(order.begin(), order.end()); // each turn has its own order
        for (u32 first = 0; first < launch_.grid; first += resident) {
            begin({order.begin() + first, order.begin() + first + resident});
            while (turn()) {
            }
        }
    }

  private:
    const Entry &entry_;
    const Launch &launch_;
    std::mt19937 random_;
    std::vector<Block> blocks_;
    std::vector<Thread> threads_;
    std::vector<std::vector<u8>> shared_;
    std::vector<u8> registers_, local_;
    std::vector<Traffic> traffic_;
    std::unique_ptr<Causality> causality_;
    u64 idle_ = 0;

    std::vector<u32> ordered(u32 count) {
        std::vector<u32> order(count);
        for (u32 i = 0; i < count; i++)
            order[i] = launch_.order == 1 ? count - 1 - i : i;
        if (launch_.order > 1)
            std::shuffle(order.begin(), order.end(), random_);
        return order;
    }
    void begin(const std::vector<u32> &indices) {
        const u32 bytes = entry_.static_shared + launch_.shared_bytes, count = (u32)indices.size() * launch_.threads;
        const u64 registers = (entry_.register_bytes + 15) / 16 * 16, local = (entry_.local_bytes + 15) / 16 * 16;
        blocks_.clear(), shared_.clear(), threads_.clear();
        shared_.assign(indices.size(), std::vector<u8>(bytes, 0xff)); // NaN until a thread writes there
        registers_.assign(count * registers, 0xa5);
        local_.assign(count * local, 0xff);
        threads_.resize(count);
        traffic_.clear(), traffic_.resize(entry_.asynchronous ? indices.size() : 0);
        blocks_.resize(indices.size());
        for (u32 i = 0; i < indices.size(); i++) {
            const u32 rank = i % launch_.cluster;
            blocks_[i] = {&launch_,
                          indices[i],
                          i,
                          bytes,
                          shared_[i].data(),
                          rank,
                          &blocks_[i - rank],
                          &threads_[i * launch_.threads]};
            if (!entry_.asynchronous)
                continue;
            Traffic &traffic = *(blocks_[i].traffic = &traffic_[i]);
            traffic.granules.resize((bytes + 7) / 8);
            traffic.registers.assign(launch_.threads / 32, entry_.registers);
            traffic.exchanges.resize(launch_.threads / 32);
            blocks_[i].warpgroups.resize((launch_.threads + 127) / 128);
        }
        for (u32 i = 0; i < count; i++) {
            Thread &t = threads_[i];
            t.index = i % launch_.threads, t.lane = i % 32, t.block = &blocks_[i / launch_.threads];
            t.registers = registers_.data() + i * registers, t.local = local_.data() + i * local;
            t.watched.resize(entry_.watched);
            t.slot = 1 + i, t.causality = causality_.get();
            t.stop = t.index < launch_.living ? READY : DONE;
        }
        if (causality_)
            causality_->begin(indices, bytes);
        idle_ = 0;
    }
    // One turn of every block; false when all threads have ended.
    bool turn() {
        bool moved = false, alive = false, spinning = false;
        for (u32 block : ordered((u32)blocks_.size())) {
            Thread *threads = &threads_[block * launch_.threads];
            for (u32 warp : ordered(launch_.threads / 32))
                moved |= run_warp(threads + 32 * warp);
            moved |= release(threads);
            bool ended = true;
            for (u32 i = 0; i < launch_.threads; i++) {
                ended &= threads[i].stop == DONE;
                spinning |= threads[i].stop == YIELDED;
                if (threads[i].stop == YIELDED)
                    threads[i].stop = READY;
            }
            alive |= !ended;
            if (ended && !blocks_[block].ended)
                end(blocks_[block]);
        }
        if (!alive)
            return false;
        for (u32 first = 0; first < blocks_.size() && launch_.cluster > 1; first += launch_.cluster)
            moved |= release_cluster(&threads_[first * launch_.threads]);
        if (!moved && !deliver_one([](Block &block, u32 from) {
                return deliver_awaited(block, from) || deliver_commits(block, false);
            }))
            stuck();
        if (spinning && ++idle_ % 100 == 0)
            deliver_one([](Block &block, u32) { return deliver_any(block) || deliver_commits(block, true); });
        if (idle_ > 200000)
            fault("deadlock", "threads wait for a flag that nobody gives");
        return true;
    }
    void end(Block &block) {
        block.ended = true;
        end_products(block);
        if (block.traffic)
            end_tensor(block), check_traffic(block), check_exchanges(block);
    }
    // Completes one late copy of any block: the oldest, the latest or a random one.
    template <class Deliver>
    bool deliver_one(Deliver deliver) {
        if (!entry_.asynchronous || !launch_.late)
            return false;
        const u32 from = launch_.order > 1 ? random_() & 0xffff : launch_.order ? 0xffff : 0;
        for (u32 block : ordered((u32)blocks_.size()))
            if (deliver(blocks_[block], from))
                return true;
        return false;
    }
    // Threads that wait for all threads of their cluster, of which some may have ended.
    bool release_cluster(Thread *threads) {
        const u32 count = launch_.cluster * launch_.threads;
        u32 least = ~0u, waiting = 0;
        for (u32 i = 0; i < count; i++) {
            if (threads[i].stop != DONE)
                least = std::min(least, threads[i].arrivals);
            waiting += threads[i].stop == CLUSTER;
        }
        bool opened = false;
        for (u32 i = 0; i < count && waiting; i++)
            if (threads[i].stop == CLUSTER && threads[i].waits <= least) {
                together(threads, i, CLUSTER);
                opened = true;
            }
        for (u32 i = 0; i < count && opened; i++)
            if (threads[i].stop == CLUSTER && threads[i].waits <= least) {
                threads[i].stop = READY, threads[i].order.acquired = ++ticks;
                threads[i].apart = !entry_.site[threads[i].site].aligned;
                if (causality_)
                    causality_->acquire(threads[i].slot,
                                        key_of(Edge::CLUSTER, threads->block->resident, 0, threads[i].waits));
            }
        return opened;
    }
    bool run_warp(Thread *warp) {
        bool any = false;
        for (bool moved = true; moved; any |= moved) {
            moved = false;
            const u32 flip = launch_.order > 1 ? random_() % 32 : launch_.order ? 31 : 0;
            for (u32 i = 0; i < 32; i++)
                if (Thread &t = warp[i ^ flip]; t.stop == READY)
                    running = &t, entry_.step(t), moved = true, running = nullptr;
            moved |= meet(warp);
        }
        return any;
    }
    // Execute the operation that all members of a mask wait for, if there is such a mask.
    bool meet(Thread *warp) {
        bool met = false;
        for (u32 lane = 0; lane < 32; lane++) {
            const Thread &first = warp[lane];
            if (first.stop != WARP)
                continue;
            const Site &site = entry_.site[first.site];
            u32 members = site.aligned ? ~0u : first.mask;
            if (!(members >> lane & 1))
                fault("invalid", "%s: lane %u is not in its own mask %#x", site.text, lane, members);
            bool all = true;
            for (u32 other = 0; other < 32; other++) {
                const Thread &t = warp[other];
                if (!(members >> other & 1))
                    continue;
                if (t.index >= launch_.living || (t.stop == DONE && !site.aligned))
                    members &= ~(1u << other); // no thread waits for threads that have ended
                else
                    all &= t.stop == WARP && entry_.site[t.site].key == site.key &&
                           (site.aligned ? t.site == first.site : t.mask == first.mask);
            }
            if (!all || (site.what == Collective::AWAIT_PRODUCTS && !issued(warp, site)) ||
                (site.what == Collective::REGISTERS && !exchange_registers(warp, site, entry_.registers)) ||
                (changes_columns(site) && !exchange_columns(warp, site)))
                continue;
            act(warp, site, members);
            for (u32 other = 0; other < 32; other++)
                if (members >> other & 1)
                    warp[other].stop = READY, warp[other].apart = false;
            met = true;
        }
        return met;
    }
    void act(Thread *warp, const Site &site, u32 members) {
        Thread *lanes[32];
        for (u32 lane = 0; lane < 32; lane++)
            lanes[lane] = warp + lane;
        switch (site.what) {
        case Collective::SYNC:
            ++ticks;
            for (Thread *lane : lanes)
                if (members >> lane->lane & 1)
                    lane->order.synced = lane->order.acquired = ticks;
            return meet_in_order(warp, 32, [&](const Thread &t) { return members >> t.lane & 1; });
        case Collective::REGISTERS:
        case Collective::CONVERGE:
            return;
        case Collective::SHUFFLE:
            return shuffle(lanes, site, members);
        case Collective::REDUCE:
            return reduce(lanes, site, members);
        case Collective::LOAD_MATRIX:
            return load_matrix(lanes, site, launch_.sm);
        case Collective::STORE_MATRIX:
            return store_matrix(lanes, site);
        case Collective::MULTIPLY:
            return multiply(lanes, site, launch_.truncated);
        case Collective::MULTIPLY_SCALED:
            return multiply_scaled(lanes, site, launch_.truncated);
        case Collective::ELECT:
            for (u32 lane = 0; lane < 32; lane++) {
                lanes[lane]->out[0] = (u32)std::countr_zero(members);
                lanes[lane]->flag = lane == (u32)std::countr_zero(members);
            }
            return;
        case Collective::FENCE_PRODUCTS:
        case Collective::ISSUE_PRODUCT:
        case Collective::COMMIT_PRODUCTS:
        case Collective::AWAIT_PRODUCTS:
            return in_warpgroup(lanes, site);
        case Collective::ALLOCATE_TENSOR:
        case Collective::FREE_TENSOR:
        case Collective::LAST_TENSOR:
        case Collective::LOAD_TENSOR:
        case Collective::STORE_TENSOR:
        case Collective::AWAIT_TENSOR:
            return in_tensor_memory(lanes, site);
        default:
            return vote(lanes, site.what, members);
        }
    }
    // Open barriers at which enough threads wait: the given count, or all threads that have not ended.
    bool release(Thread *threads) {
        u32 awaited = 0;
        for (u32 i = 0; i < launch_.threads; i++)
            awaited |= threads[i].stop == BARRIER ? 1u << threads[i].barrier : 0;
        bool opened = false;
        for (u32 barrier = 0; awaited >> barrier; barrier++)
            if (awaited >> barrier & 1)
                opened |= open(threads, barrier);
        return opened;
    }
    bool open(Thread *threads, u32 barrier) {
        u32 waiting = 0, alive = 0, count = 0, &arrived = threads->block->arrived[barrier];
        for (u32 i = 0; i < launch_.threads; i++) {
            const Thread &t = threads[i];
            alive += t.stop != DONE;
            if (t.stop != BARRIER || t.barrier != barrier)
                continue;
            if (waiting && t.count != count)
                fault("invalid", "barrier %u is awaited for %u and for %u threads", barrier, t.count, count);
            waiting++, count = t.count;
        }
        if (waiting + arrived < (count ? count : alive))
            return false;
        if (count && waiting + arrived > count)
            fault("invalid", "%u threads at barrier %u of %u", waiting + arrived, barrier, count);
        for (u32 i = 0; i < launch_.threads; i++)
            if (threads[i].barrier == barrier)
                together(threads, i, BARRIER);
        ++ticks;
        if (causality_ && arrived) {
            const u64 key = key_of(Edge::BARRIER, threads->block->resident, barrier, 0);
            for (u32 i = 0; i < launch_.threads; i++)
                if (threads[i].stop == BARRIER && threads[i].barrier == barrier)
                    causality_->acquire(threads[i].slot, key);
            causality_->forget(key);
        }
        arrived = 0;
        const auto takes_part = [&](const Thread &t) { return t.stop == BARRIER && t.barrier == barrier; };
        meet_in_order(threads, launch_.threads, takes_part);
        bool any = false; // of the predicates of bar.red.or
        for (u32 i = 0; i < launch_.threads; i++)
            any |= takes_part(threads[i]) && threads[i].in[0];
        for (u32 i = 0; i < launch_.threads; i++)
            if (takes_part(threads[i]))
                threads[i].flag = any, threads[i].stop = READY,
                threads[i].order.synced = threads[i].order.acquired = ticks;
        return true;
    }
    template <class TakesPart>
    void meet_in_order(const Thread *threads, u32 count, TakesPart takes_part) {
        if (!causality_)
            return;
        std::vector<u32> slots;
        for (u32 i = 0; i < count; i++)
            if (takes_part(threads[i]))
                slots.push_back(threads[i].slot);
        causality_->meet(slots);
    }
    // All threads of a warp execute an aligned barrier at one place: no thread has ended.
    void together(const Thread *threads, u32 i, Stop stop) const {
        const Thread &t = threads[i];
        if (t.stop != stop || !entry_.site[t.site].aligned)
            return;
        for (u32 other = i / 32 * 32; other < i / 32 * 32 + 32; other++)
            if (threads[other].index < launch_.living && (threads[other].stop != stop || threads[other].site != t.site))
                fault("divergent", "%s: thread %u is there, thread %u of its warp is not", entry_.site[t.site].text, i,
                      other);
    }
    static std::string missing(Block &block, u64 address) {
        const Mbarrier &m = *found_mbarrier(block, address);
        return std::to_string(m.pending) + " arrivals and " + std::to_string(m.bytes) + " bytes are missing";
    }
    [[noreturn]] void stuck() const {
        for (const Thread &t : threads_) {
            if (t.stop != WARP)
                continue;
            const Thread *warp = &t - t.lane;
            for (u32 other = 0; other < 32; other++)
                if (warp[other].index < launch_.living && (warp[other].stop != WARP || warp[other].site != t.site))
                    fault("divergent", "%s: lane %u of block %u is there, lane %u %s", entry_.site[t.site].text, t.lane,
                          t.block->index, other,
                          warp[other].stop == DONE ? "has ended" : entry_.site[warp[other].site].text);
        }
        for (const Thread &t : threads_)
            if (t.stop == WARP && entry_.site[t.site].what == Collective::REGISTERS)
                fault("registers", "%s: block %u has %u registers left", entry_.site[t.site].text, t.block->index,
                      t.block->traffic->free_registers);
        for (const Thread &t : threads_)
            if (t.stop == WARP && changes_columns(entry_.site[t.site]))
                fault("deadlock", "%s: block %u waits for columns, or for the other block of its pair",
                      entry_.site[t.site].text, t.block->index);
        for (const Thread &t : threads_)
            if (t.stop == WARP && entry_.site[t.site].what == Collective::AWAIT_PRODUCTS)
                fault("divergent", "%s: thread %u waits for products that other warps of its warpgroup have not issued",
                      entry_.site[t.site].text, t.index);
        for (const Thread &t : threads_)
            if (t.stop == BARRIER)
                fault("deadlock", "thread %u of block %u waits at barrier %u for ever", t.index, t.block->index,
                      t.barrier);
            else if (t.stop == PHASE)
                fault("deadlock", "thread %u of block %u waits for the mbarrier at %#llx for ever: %s", t.index,
                      t.block->index, (unsigned long long)t.awaited, missing(*t.block, t.awaited).c_str());
            else if (t.stop == CLUSTER)
                fault("deadlock", "thread %u of block %u waits for its cluster for ever", t.index, t.block->index);
        fault("deadlock", "no thread can go on");
    }
};
} // namespace

extern "C" int run_entry(const Entry *entry, const Launch *launch, char *message, u32 room) {
    try {
        if (launch->params_bytes != entry->params_bytes)
            fault("invalid", "%s takes %u bytes of parameters, not %u", entry->name, entry->params_bytes,
                  launch->params_bytes);
        if (launch->cluster != entry->cluster)
            fault("invalid", "%s has clusters of %u blocks, the launch of %u", entry->name, entry->cluster,
                  launch->cluster);
        ticks = 0, running = nullptr;
        Scheduler(*entry, *launch).run();
        return 0;
    } catch (const Fault &found) {
        std::snprintf(message, room, "%s: %s in %s", found.kind, found.text, entry->name);
        return 1;
    }
}
