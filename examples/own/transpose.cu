// out[x][y] = in[y][x] through a tile in shared memory.
// Knobs: tile (of tile x tile numbers), rows (of threads in a block), pad (numbers between rows of the tile).
template <class T>
__global__ void transpose(T *out, const T *in, int width, int height) {
    __shared__ T numbers[tile][tile + pad];
    int x = blockIdx.x * tile + threadIdx.x, y = blockIdx.y * tile + threadIdx.y;
#pragma unroll
    for (int step = 0; step < tile; step += rows)
        if (x < width && y + step < height)
            numbers[threadIdx.y + step][threadIdx.x] = in[(size_t)(y + step) * width + x];
    __syncthreads();
    x = blockIdx.y * tile + threadIdx.x, y = blockIdx.x * tile + threadIdx.y;
#pragma unroll
    for (int step = 0; step < tile; step += rows)
        if (x < height && y + step < width)
            out[(size_t)(y + step) * height + x] = numbers[threadIdx.x][threadIdx.y + step];
}
