// Measurements of the figures that the roofline assumes. The text follows that of epilogue_operand.cuh, which defines
// intrinsics and Params. Every kernel stores a word per thread to c, so that the compiler keeps every load.
#ifndef MMA_K
#define MMA_K 16 // extent along k of the float16 products: 16, or 8 before sm_80
#endif

constexpr int PROBE_THREADS = 256, IN_FLIGHT = 4, CHAINS = 8, TILES = 4;

DEVICE void store_word(const Params &params, u32 value) {
    const i64 thread = (i64)block_index() * PROBE_THREADS + thread_index();
    Vec<4> word = Vec<4>::zero();
    word.word[0] = value;
    store_global<4>(gptr<u32>(params.c) + thread, word, true);
}

// An empty kernel, for the time of a launch.
KERNEL(probe_nothing, Params, 256, 0) {}

// Every block reads the 16-byte vectors [0, m) of a cyclically from its own offset on, k rounds of four per thread. The
// offsets of blocks are so far apart that blocks of one multiprocessor do not share vectors in its L1.
KERNEL(probe_stream, Params, 256, 0) {
    const u32 vectors = (u32)params.m;
    u32 at = (u32)((u64)vectors * (u32)block_index() / (u32)grid_size()) + (u32)thread_index(), sum = 0;
    ROLLED for (i32 round = 0; within(round, params.k); ++round) {
        Vec<16> found[IN_FLIGHT];
        UNROLL for (int i = 0; i < IN_FLIGHT; ++i) {
            if (!within(at, vectors))
                at -= vectors;
            found[i] = load_written<16>(gptr<u8>(params.a) + (i64)at * 16);
            at += PROBE_THREADS;
        }
        UNROLL for (int i = 0; i < IN_FLIGHT; ++i) sum ^= found[i].word[0] ^ found[i].word[3];
    }
    store_word(params, sum);
}

// One thread follows indices in a, k times, from word m on: each word is the index of the next one.
KERNEL(probe_chase, Params, 256, 0) {
    if (thread_index() != 0)
        return;
    u32 at = (u32)params.m;
    ROLLED for (i32 step = 0; within(step, params.k); ++step) at =
        load_written<4>(gptr<u32>(params.a) + (i64)at).word[0];
    store_word(params, at);
}

// x = x / 2 + 1 in independent chains.
KERNEL(probe_fma, Params, 256, 0) {
    float x[CHAINS];
    UNROLL for (int i = 0; i < CHAINS; ++i) x[i] = (float)(thread_index() + i);
    ROLLED for (i32 step = 0; within(step, params.k); ++step) UNROLL for (int i = 0; i < CHAINS; ++i) x[i] =
        fma_(x[i], 0.5f, 1.0f);
    float sum = 0;
    UNROLL for (int i = 0; i < CHAINS; ++i) sum += x[i];
    store_word(params, (u32)sum);
}

// Products of float16 registers: numbers of lanes times a half.
KERNEL(probe_mma, Params, 256, 0) {
    float sums[TILES][4] = {};
    u32 a[MMA_K / 4], b[MMA_K / 8];
    UNROLL for (int i = 0; i < MMA_K / 4; ++i) a[i] =
        pack_pair((float)(thread_index() & 31), (float)(thread_index() >> 2 & 7), half_t{});
    UNROLL for (int i = 0; i < MMA_K / 8; ++i) b[i] = pack_pair(0.5f, 0.5f, half_t{});
    ROLLED for (i32 step = 0; within(step, params.k); ++step) {
        UNROLL for (int i = 0; i < TILES; ++i) {
#if MMA_K == 16
            mma_m16n8k16(sums[i], a, b, half_t{});
#else
            mma_m16n8k8(sums[i], a, b);
#endif
        }
    }
    float sum = 0;
    UNROLL for (int i = 0; i < TILES; ++i) sum += sums[i][0] + sums[i][3];
    store_word(params, (u32)sum);
}
