// A square filter over a padded image: out[y][x] = sum of filter[j][i] * image[y + j][x + i].
// Knobs: block_size_x, block_size_y, tile_size_x, tile_size_y, use_padding, read_only.
#ifndef FILTER
#define FILTER 15
#endif
constexpr int BORDER = FILTER - 1;
constexpr int WIDTH = block_size_x * tile_size_x, HEIGHT = block_size_y * tile_size_y;
// Rows of a block narrower than a warp start in different banks.
constexpr int PAD = use_padding && block_size_x % 32 != 0 ? (32 - (WIDTH + BORDER - block_size_x) % 32) % 32 : 0;

__constant__ float d_filter[FILTER * FILTER];

extern "C" __global__ void convolution(float *out, const float *image, int width, int height) {
    __shared__ float tile[HEIGHT + BORDER][WIDTH + BORDER + PAD];
    const int left = blockIdx.x * WIDTH, top = blockIdx.y * HEIGHT, pitch = width + BORDER;
    for (int y = threadIdx.y; y < HEIGHT + BORDER; y += block_size_y)
        for (int x = threadIdx.x; x < WIDTH + BORDER; x += block_size_x) {
            if (top + y < height + BORDER && left + x < pitch) {
                const float *from = image + (size_t)(top + y) * pitch + left + x;
                tile[y][x] = read_only ? __ldg(from) : *from;
            } else {
                tile[y][x] = 0; // results beyond the image are computed, and not stored
            }
        }
    __syncthreads();
    float sums[tile_size_y][tile_size_x] = {};
#pragma unroll
    for (int j = 0; j < FILTER; j++)
#pragma unroll
        for (int i = 0; i < FILTER; i++)
#pragma unroll
            for (int y = 0; y < tile_size_y; y++)
#pragma unroll
                for (int x = 0; x < tile_size_x; x++)
                    sums[y][x] += d_filter[j * FILTER + i] *
                                  tile[threadIdx.y + y * block_size_y + j][threadIdx.x + x * block_size_x + i];
#pragma unroll
    for (int y = 0; y < tile_size_y; y++)
#pragma unroll
        for (int x = 0; x < tile_size_x; x++) {
            const int row = top + threadIdx.y + y * block_size_y, column = left + threadIdx.x + x * block_size_x;
            if (row < height && column < width)
                out[(size_t)row * width + column] = sums[y][x];
        }
}
