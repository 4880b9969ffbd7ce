// The argument of every kernel, passed by value: for a contraction, C = epilogue(A * B) over a batch.
// core/params.py packs the same bytes.
#pragma once
#include "divisor.cuh"

// One operation of the epilogue, applied to every output v at (row, column) of a batch entry.
struct EpilogueStep {
    u64 pointer;         // the operand x; of an operation without operand, the imaginary part of the scalar (a double)
    i64 batch_stride[3]; // in elements of x; a stride of 0 broadcasts
    i64 m_stride;
    i64 n_stride;
    double scalar;
    i32 code;  // EpilogueCode
    i32 dtype; // OperandType of x
};

constexpr int MAX_EPILOGUE_STEPS = 6;

// An operand that is read through a sliding window: row and k are divided into digits, the outermost first.
struct Window {
    i64 row_stride[3]; // elements per image, output row, output column
    i64 k_stride[3];   // elements per filter row, filter column and channel, or per channel, filter row and column
    i64 shift;         // elements from the first position of the first tap to the start of the image: the padding
    i32 rows[2];       // extents of the two inner digits of a row
    i32 ks[2];         // extents of the two inner digits of k
    // Along h and w: the element with the index step * output + dilation * filter - pad, zero outside of 0 <= index <
    // extent. A transposed convolution first divides the index by `divisor`; elements with a remainder are zero.
    i32 extent[2], step[2], dilation[2], pad[2], divisor[2];
    i32 unused[2];
};

// Arguments of rows.cu in addition to strides and sizes.
struct RowsTail {
    double value;    // eps of a norm; the number that a variance subtracts from the count
    i64 k_stride[2]; // elements of x per outer and middle digit of k
    i32 k_extent[2]; // extents of the middle and the inner digit
};

// One image channel under a sliding window (depthwise convolution, pooling). Pairs are along h and w.
struct Sliding {
    i64 image, row, column, channel;               // strides of x in elements
    i64 filter_row, filter_column, filter_channel; // strides of the filter, if there is one
    i32 extent[2], output[2];                      // of an image
    i32 window[2], step[2], dilation[2], pad[2];   // the element at step * output + dilation * window - pad
    i32 images, channels;
    i32 counted_from[2], counted_to[2]; // positions that an average counts; or Prepared's scale and second
};

// Zero points of a quantised b. d are its scales: d_m is the stride between groups, d_n between columns. Where both
// operands of a product have scales per block, d are the scales of A, by rows and groups, and this struct describes the
// scales of B.
struct Groups {
    u64 zeros;              // the fourth operand, or 0
    i64 zero_n, zero_group; // its strides in elements: columns (blocks of them), groups
};

// Arguments of attention in addition to a = Q, b = K, d = V and c. The batch axes are (batch, head of K and V, head
// within the group of query heads that share it); m queries, k keys, n elements of a head.
struct Attention {
    u64 mask;                          // the fourth operand, or 0
    i64 mask_batch[3], mask_m, mask_k; // its strides in elements: batch, heads, queries, keys
    float scale;                       // of Q K^T
    i32 diagonal;                      // query i attends to the keys below i + diagonal
    i32 first_diagonal;                // and, under a sliding window, from i + first_diagonal on
    float softcap;                     // scaled scores s become softcap * tanh(s / softcap)
    // Sequences of different lengths (attention_sequence.cuh). Their diagonals are relative to the index of the key
    // that belongs to the first query: the number of keys minus the number of queries, or 0 for upper_left.
    u64 query_ends, key_ends; // int32: ends of each sequence's rows in Q and keys in K and V; with pages, lengths
    u64 table;                // int32: the numbers of each sequence's pages, table_row elements between sequences
    i64 table_row;
    i32 sequences, upper_left;
    i32 page_shift, pages; // 1 << page_shift keys per page; pages in K and V, b_batch[0] and d_batch[0] apart
};

// A product of two matrices B (gate.cuh).
struct Gated {
    i64 b_other; // elements from the gate to the other matrix
};

// Rows that are normalised (norm.cuh).
struct Normed {
    double eps;
    i32 before; // operations of the epilogue before the norm
};

// Operations on an operand when it is read (prologue.cuh), after the arguments of a window.
struct Prepared {
    u64 others[14];
    double scale; // the scalar of its operations
    u64 second;   // the second vector; the first is d
};

// Divisors of the numbers of tiles: tiles of a batch entry, parts of k, extents of the inner and the middle batch axis,
// and tiles of a group of tile rows.
struct TileDivisors {
    Divisor tiles, parts, inner, middle, group;
};

struct Params {
    u64 a, b, c;   // addresses of A[batch, m, k], B[batch, k, n], C[batch, m, n]
    u64 workspace; // split-K: partial sums [split, batch, m, workspace_columns(n)] in ACC_TYPE
    u64 d;         // a third operand, of families that have one; the bias of a gated product, d_m from the gate's to
                   // the other matrix's; the ends of groups of different numbers of rows, int32, d_n elements apart
    // Strides in elements. Three batch axes, the outermost first; a stride of 0 broadcasts.
    i64 a_batch[3], a_m, a_k;
    i64 b_batch[3], b_k, b_n;
    i64 c_batch[3], c_m, c_n;
    i64 d_batch[3], d_m, d_n;
    i32 m, n, k, batch;   // batch = product of the three batch extents; k may be 0, the others not
    i32 batch_inner[2];   // extents of batch axes 1 and 2
    i32 tiles_m, tiles_n; // tiles of C along m and n
    i32 split;            // parts of k, each k_per_split long (the last may be shorter)
    i32 k_per_split;      // a multiple of BLOCK_K
    i32 raster;           // rows of tiles that are walked together, column by column
    i32 steps;            // operations of the epilogue
    i32 integer_steps;    // int32 accumulators: the number of leading operations in int32; the rest are in float
    i32 advance[3];       // a block's step of k in digits, for families that divide k into digits
    EpilogueStep step[MAX_EPILOGUE_STEPS];
    union { // arguments of one kind of operator
        Window window;
        RowsTail rows;
        Sliding sliding;
        Attention attention;
        Gated gated;
        Normed normed;
        Groups groups;
        Prepared prepared;
        u64 tail[16];
    };
    TileDivisors by;
};

static_assert(sizeof(EpilogueStep) == 64, "EpilogueStep is packed by Python as 64 bytes.");
static_assert(sizeof(Window) <= 128 && sizeof(Sliding) == 128, "Tails are packed by Python as 128 bytes.");
static_assert(sizeof(Prepared) == 128 && sizeof(Window) - sizeof(i32[2]) <= sizeof(u64[14]) &&
                  sizeof(Sliding) - sizeof(i32[4]) <= sizeof(u64[14]),
              "A prologue has the bytes of Params after a window.");
static_assert(sizeof(Normed) == 16, "A norm's eps is packed by Python as a double, then an int.");
static_assert(sizeof(Params) == 264 + 64 * MAX_EPILOGUE_STEPS + 128 + 64, "Params is packed by Python as 840 bytes.");
// Index of a batch entry along the three batch axes.
struct Batch {
    i32 index[3];
};

DEVICE Batch split_batch(const Params &params, i32 entry) {
    const u32 inner = (u32)params.batch_inner[1], middle = (u32)params.batch_inner[0];
    const u32 outer = (u32)entry / inner;
    return Batch{{(i32)(outer / middle), (i32)(outer % middle), (i32)((u32)entry % inner)}};
}

// Elements from an operand's first entry to this one.
DEVICE i64 batch_offset(const i64 (&stride)[3], const Batch &batch) {
    return batch.index[0] * stride[0] + batch.index[1] * stride[1] + batch.index[2] * stride[2];
}
