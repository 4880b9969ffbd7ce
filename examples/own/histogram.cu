// counts[v] = how often the byte v is among `bytes`. Each block counts in shared memory, several times side by side.
// Knobs: threads, words (of four bytes that a thread reads), copies (of the counts in a block).
extern "C" __global__ void histogram(unsigned *counts, const unsigned *bytes, int count) {
    __shared__ unsigned own[copies][256];
    for (int i = threadIdx.x; i < copies * 256; i += threads)
        (&own[0][0])[i] = 0;
    __syncthreads();
    unsigned *mine = own[threadIdx.x % copies];
#pragma unroll
    for (int i = 0; i < words; i++) {
        const int at = (blockIdx.x * words + i) * threads + threadIdx.x;
        if (at < count) {
            const unsigned four = bytes[at];
#pragma unroll
            for (int shift = 0; shift < 32; shift += 8)
                atomicAdd(&mine[four >> shift & 255], 1u);
        }
    }
    __syncthreads();
    for (int v = threadIdx.x; v < 256; v += threads) {
        unsigned sum = 0;
#pragma unroll
        for (int copy = 0; copy < copies; copy++)
            sum += own[copy][v];
        if (sum)
            atomicAdd(&counts[v], sum);
    }
}
