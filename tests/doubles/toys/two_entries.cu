#ifndef REGISTERS
#define REGISTERS 8
#endif
extern "C" __global__ void first(float *p, int n) {
    float v[REGISTERS];
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i)
        v[i] = p[i * 256 + threadIdx.x];
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int i = 0; i < REGISTERS; ++i)
            v[i] = v[i] * v[(i + 1) % REGISTERS] + 1.0f;
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i)
        p[i * 256 + threadIdx.x] = v[i];
}
extern "C" __global__ void __launch_bounds__(1024, 2) second(float *p) {
    __shared__ float s[64];
    s[threadIdx.x] = *p;
    __syncthreads();
    p[threadIdx.x] = s[63 - threadIdx.x];
}
