// Accelerations of n bodies (x, y, z, mass) by gravity, softened. Bodies of a tile are read from shared memory.
// Knobs: threads, bodies (that a thread computes), unroll.
extern "C" __global__ void nbody(float4 *accelerations, const float4 *positions, int n) {
    __shared__ float4 tile[threads];
    float4 own[bodies];
    float3 sums[bodies];
    const int first = blockIdx.x * threads * bodies + threadIdx.x;
#pragma unroll
    for (int b = 0; b < bodies; b++) {
        const int i = first + b * threads;
        own[b] = i < n ? positions[i] : make_float4(0, 0, 0, 0);
        sums[b] = make_float3(0, 0, 0);
    }
    for (int start = 0; start < n; start += threads) {
        const int i = start + threadIdx.x;
        tile[threadIdx.x] = i < n ? positions[i] : make_float4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll unroll
        for (int j = 0; j < threads; j++) {
            const float4 other = tile[j];
#pragma unroll
            for (int b = 0; b < bodies; b++) {
                const float x = other.x - own[b].x, y = other.y - own[b].y, z = other.z - own[b].z;
                const float inverse = rsqrtf(x * x + y * y + z * z + 1e-4f);
                const float pull = other.w * inverse * inverse * inverse;
                sums[b].x += x * pull, sums[b].y += y * pull, sums[b].z += z * pull;
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int b = 0; b < bodies; b++)
        if (first + b * threads < n)
            accelerations[first + b * threads] = make_float4(sums[b].x, sums[b].y, sums[b].z, 0);
}
