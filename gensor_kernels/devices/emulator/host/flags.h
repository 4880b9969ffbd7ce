// Flags in global memory, by which blocks that run at the same time wait for one another. Stores of a thread
// before it gives a flag, and of its warp or block before their last barrier, are seen by the thread that takes it, and
// by its warp or block after their next barrier (memory.h: sees). Other blocks do not see them: no kernel here relies
// on that.
#pragma once
#include "scheduler.h"

namespace emulator {

// Flags are stored to repeatedly: their bytes are checked for bounds, not for races.
static u64 &flag_word(u64 address, Site site) {
    check_launched(site);
    if (address % 8)
        fault(MISALIGNED, "the flag at %s line %d lies at address %#llx", site.file, site.line, address);
    for (int i = 0; i < machine.request->buffer_count; ++i) {
        const Buffer &buffer = machine.request->buffers[i];
        if (buffer.writable && address >= buffer.begin && address + 8 <= buffer.begin + buffer.bytes)
            return *(u64 *)(buffer.host + (address - buffer.begin));
    }
    report_outside(address, 8, true, site);
}

void give_flag(u64 address, u64 value, Site site) {
    tick();
    u64 &word = flag_word(address, site);
    Flag &flag = machine.flags[address];
    if (flag.given)
        fault(INVALID, "the flag at %s line %d is given again before it is taken", site.file, site.line);
    word = value;
    flag.given = true, flag.block = current->block->index;
    flag.known = Known{current->index, 0, now(), 0, ++machine.ticks};
    wake(flag.waiting);
}

void take_flag(u64 address, u64 value, Site site) {
    tick();
    u64 &word = flag_word(address, site);
    Flag &flag = machine.flags[address];
    // CUDA promises no order of blocks: the block that gives the flag may start only after this one has ended.
    if (machine.request->resident < machine.request->grid)
        fault(DEADLOCK, "%s line %d waits for a flag in a launch whose blocks are not resident together", site.file,
              site.line);
    while (word != value) {
        flag.waiting.push_back(current);
        wait_at(FLAG_WAIT, site);
    }
    word = 0;
    if (!flag.given)
        return; // the memory already had this value: no thread gave it
    flag.given = false;
    flag.known.taker = current->index, flag.known.taken = now();
    current->block->known[{flag.block, current->warp()}] = flag.known;
}

} // namespace emulator
