// One step of heat flow on an n^3 grid (seven points); the threads of a block walk along z and keep three planes.
// Knobs: block_size_x, block_size_y, planes (that a block walks through), staged (the middle plane in shared memory).
extern "C" __global__ void stencil(float *out, const float *in, int n, float rate) {
    const int x = blockIdx.x * block_size_x + threadIdx.x, y = blockIdx.y * block_size_y + threadIdx.y;
    const int first = blockIdx.z * planes;
    const size_t plane = (size_t)n * n, column = (size_t)y * n + x;
    const bool inside = x < n && y < n;
#if staged
    __shared__ float middle[block_size_y + 2][block_size_x + 2];
#endif
    const auto at = [&](int z, int dy, int dx) {
        const int yy = y + dy, xx = x + dx;
        return z >= 0 && z < n && yy >= 0 && yy < n && xx >= 0 && xx < n ? in[z * plane + (size_t)yy * n + xx] : 0.0f;
    };
    float below = inside ? at(first - 1, 0, 0) : 0.0f, here = inside ? at(first, 0, 0) : 0.0f;
    for (int z = first; z < min(first + planes, n); z++) {
        const float above = inside ? at(z + 1, 0, 0) : 0.0f;
#if staged
        __syncthreads();
        middle[threadIdx.y + 1][threadIdx.x + 1] = here;
        if (threadIdx.x == 0)
            middle[threadIdx.y + 1][0] = at(z, 0, -1);
        if (threadIdx.x == block_size_x - 1)
            middle[threadIdx.y + 1][block_size_x + 1] = at(z, 0, 1);
        if (threadIdx.y == 0)
            middle[0][threadIdx.x + 1] = at(z, -1, 0);
        if (threadIdx.y == block_size_y - 1)
            middle[block_size_y + 1][threadIdx.x + 1] = at(z, 1, 0);
        __syncthreads();
        const float *const point = &middle[threadIdx.y + 1][threadIdx.x + 1];
        const float around = point[-1] + point[1] + point[-(block_size_x + 2)] + point[block_size_x + 2];
#else
        const float around = inside ? at(z, 0, -1) + at(z, 0, 1) + at(z, -1, 0) + at(z, 1, 0) : 0.0f;
#endif
        if (inside)
            out[z * plane + column] = here + rate * (around + below + above - 6.0f * here);
        below = here, here = above;
    }
}
