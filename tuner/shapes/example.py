"""An example of a shapes file, to change and tune: `gensor-tune shapes --example`."""

#: Sizes are small: all rows are tuned within a minute or two.
TEXT = """\
# The calls of a program, one in each row: replace them by yours, and tune them for a board, here without a GPU:
#     gensor-tune --arch "Jetson Orin Nano" --shapes shapes.csv --db kernels.db
# Only op and its sizes are required, and cells may be empty. Lines that begin with # are left out.
#   name, count     a label, and how often the call occurs in a pass of the model
#   dtype           fp16, bf16, fp32 (the default), tf32, fp64, int8 and others
#   m, n, k         sizes of a product: a is (m, k), b is (k, n); with trans_b = 1, b is stored as (n, k)
#   epilogue        what follows in the same kernel: bias, relu, gelu, gelu_tanh, silu, add, joined by _
#   h, w, c         an image, n of them; k_out filters of r x s, with strides and pads
#   shape, axes     of a reduction, a norm or a softmax: extents joined by x; the axes it goes over
# All operators and columns: https://github.com/gensor-kernels/gensor-kernels/blob/main/docs/reference/shapes-file.md
# A program's own calls: GENSOR_RECORD=shapes.csv python program.py. A model's: gensor-tune shapes MODEL.onnx -o FILE
name,count,op,dtype,m,n,k,trans_b,epilogue,h,w,c,k_out,r,s,stride_h,stride_w,pad_top,pad_bottom,pad_left,pad_right,shape,axes,queries,keys,head,heads
# products: a linear layer with bias and activation, its weights stored as PyTorch stores them, and one row of a decoder
projection,12,matmul,fp16,128,256,256,,bias_gelu_tanh,,,,,,,,,,,,,,,,,,
linear,12,matmul,fp16,128,256,256,1,bias,,,,,,,,,,,,,,,,,,
decoding,1,gemv,bf16,1,512,256,1,none,,,,,,,,,,,,,,,,,,
# a convolution of one 56 x 56 image with 64 channels: 3 x 3, padded by 1
layer1,3,conv2d,fp16,,1,,,bias_relu,56,56,64,64,3,3,1,1,1,1,1,1,,,,,,
# rows of 1,024 numbers: softmax and a layer norm over the last axis
probabilities,12,softmax,fp16,,,,,,,,,,,,,,,,,,128x1024,1,,,,
norm,25,layernorm,fp32,,,,,,,,,,,,,,,,,,128x1024,1,,,,
# attention of 4 heads of 64 elements, 128 queries and keys
attention,12,attention,fp16,,,,,,,,,,,,,,,,,,,,128,128,64,4
"""
