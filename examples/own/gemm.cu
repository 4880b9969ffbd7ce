// C[j][i] = sum over p of A[p][i] B[p][j], for float matrices whose rows are contiguous along i and j; the knobs are
// those of CLBlast's Xgemm.
//
// MWG, NWG, KWG  tile of a block, and its step of p
// MDIMC, NDIMC   threads of a block along i and j
// MDIMA, NDIMB   threads along i (j) while they copy a tile of A (B)
// KWI            steps of p that are unrolled
// VWM, VWN       elements of an access along i and j
// STRM, STRN     1: accesses of a thread are as far apart as there are threads; 0: they are adjacent
// SA, SB         1: tiles of A (B) are copied to shared memory
constexpr int THREADS = MDIMC * NDIMC, MWI = MWG / MDIMC, NWI = NWG / NDIMC;

template <int WIDTH>
struct alignas(4 * WIDTH) Wide {
    float at[WIDTH];
};

// The place of access v of thread t, of COUNT threads with EACH accesses.
template <int STRIDED, int COUNT, int EACH>
__device__ int place(int t, int v) {
    return STRIDED ? v * COUNT + t : t * EACH + v;
}

// Copies a tile of KWG rows; ACROSS threads are along a row.
template <int EXTENT, int ACROSS, int WIDTH, int STRIDED>
__device__ void copy(Wide<WIDTH> (*tile)[EXTENT / WIDTH], const float *from, int pitch) {
    const int number = threadIdx.y * MDIMC + threadIdx.x;
    constexpr int DOWN = THREADS / ACROSS, EACH = EXTENT / ACROSS / WIDTH;
#pragma unroll
    for (int row = 0; row < KWG / DOWN; row++)
#pragma unroll
        for (int v = 0; v < EACH; v++) {
            const int line = number / ACROSS + row * DOWN, column = place<STRIDED, ACROSS, EACH>(number % ACROSS, v);
            tile[line][column] = *(const Wide<WIDTH> *)(from + (size_t)line * pitch + column * WIDTH);
        }
}

extern "C" __global__ void __launch_bounds__(MDIMC *NDIMC)
    gemm(float *c, const float *__restrict__ a, const float *__restrict__ b, int m, int n, int k) {
    __shared__ Wide<VWM> tile_a[SA ? KWG : 1][MWG / VWM];
    __shared__ Wide<VWN> tile_b[SB ? KWG : 1][NWG / VWN];
    const int i = blockIdx.x * MWG, j = blockIdx.y * NWG;
    float sums[NWI][MWI] = {};
    for (int first = 0; first < k; first += KWG) {
        if (SA)
            copy<MWG, MDIMA, VWM, STRM>(tile_a, a + (size_t)first * m + i, m);
        if (SB)
            copy<NWG, NDIMB, VWN, STRN>(tile_b, b + (size_t)first * n + j, n);
        if (SA || SB)
            __syncthreads();
        for (int some = 0; some < KWG; some += KWI) {
#pragma unroll
            for (int more = 0; more < KWI; more++) {
                const int p = some + more;
                Wide<VWM> left[MWI / VWM];
                Wide<VWN> right[NWI / VWN];
#pragma unroll
                for (int v = 0; v < MWI / VWM; v++) {
                    const int at = place<STRM, MDIMC, MWI / VWM>(threadIdx.x, v);
                    left[v] =
                        SA ? tile_a[SA ? p : 0][at] : *(const Wide<VWM> *)(a + (size_t)(first + p) * m + i + at * VWM);
                }
#pragma unroll
                for (int v = 0; v < NWI / VWN; v++) {
                    const int at = place<STRN, NDIMC, NWI / VWN>(threadIdx.y, v);
                    right[v] =
                        SB ? tile_b[SB ? p : 0][at] : *(const Wide<VWN> *)(b + (size_t)(first + p) * n + j + at * VWN);
                }
#pragma unroll
                for (int y = 0; y < NWI; y++)
#pragma unroll
                    for (int x = 0; x < MWI; x++)
                        sums[y][x] += left[x / VWM].at[x % VWM] * right[y / VWN].at[y % VWN];
            }
        }
        if (SA || SB)
            __syncthreads();
    }
#pragma unroll
    for (int y = 0; y < NWI; y++) {
        const int row = j + place<STRN, NDIMC, NWI / VWN>(threadIdx.y, y / VWN) * VWN + y % VWN;
#pragma unroll
        for (int v = 0; v < MWI / VWM; v++) {
            Wide<VWM> out;
#pragma unroll
            for (int x = 0; x < VWM; x++)
                out.at[x] = sums[y][v * VWM + x];
            *(Wide<VWM> *)(c + (size_t)row * m + i + place<STRM, MDIMC, MWI / VWM>(threadIdx.x, v) * VWM) = out;
        }
    }
}
