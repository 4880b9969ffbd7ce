"""Shapes files as people, spreadsheets and attackers make them: sound ones, with cells and bytes changed."""

import codecs

#: Names of operators, columns and types; numbers.
WORDS = (
    *("", "op ", " 8 ", "9" * 5000, "1 2", "bias_" * 7, "1x" * 40, "matmul "),
    *"op name m k batch dtype epilogue count trans_b groups r pad_top shape axes heads causal layout_a note".split(),
    *"matmul conv2d max_pool2d softmax reduce_sum rnn_lstm attention quantised_int4 MATMUL __import__".split(),
    *"fp16 tf32 int4 fp4_e2m1 complex64_3m row NHWC bias_relu swiglu scale;scale 1x2x3 2;3 0x0 lower_right".split(),
    *"0 1 7 64 4096 2147483648 9999999999999999999 -1 +1 1.0 1e9 1_000 0x10 007 １２ ٣ ² nan inf 1,5 true".split(),
)
HOSTILE = (
    *("=cmd|' /C calc'!A0", "'; DROP TABLE kernel; --", "$(touch x)", "\\", "\x1b[2J", "\u202e", "\ufeff"),
    *("\ud7ff", "\x85", "\u2028", "a\x0bb", "\x1c", "\x00", '"', '""', '"a', 'a"b"', "\t", "x" * 3000),
    *"=1+1 @SUM(A1) -2+3 `id` ../../etc %s%n{0}{op} 😀😀😀😀😀😀😀😀😀😀 ''' sm_87 --arch -I/etc".split(),
)
SOUND = (
    "name,op,m,n,k,dtype,epilogue,count,note\nqkv,matmul,64,128,256,fp16,bias_relu,12,x\n,gemv,1,4096,4096,fp32,,,\n",
    "op,n,h,w,c,k_out,r,s,pad_top,layout,groups\nconv2d,8,56,56,64,128,3,3,1,NHWC,1\nconv2d,1,14,14,32,32,3,3,,nchw,32\n",
    "op,dtype,shape,axes\nsoftmax,fp16,1x12x128x128,3\nreduce_sum,fp32,128x32x11x11,2;3\nrelu,fp32,4x5,\n",
    "op,heads,queries,keys,head,causal,batch\nattention,12,100,,64,lower_right,2\nattention,4,7,9,128,none,\n",
    "op,m,n,k,batch,trans_b,layout_a,layout_b,align_a,align_b,align_c,out\nmatmul,64,64,64,2,1,k,k,16,4,16,fp32\n",
    "op,hidden,batch,timesteps\nrnn_lstm,512,16,25\nrnn_gru,128,1,7\n",
    "op,n,h,w,c,r,s,stride_h,ceil_mode\nmax_pool2d,8,112,112,64,3,3,2,1\navg_pool2d,1,8,8,8,2,2,2,0\n",
    "op,groups,m,n,k,dtype_b,group,zeros\nragged_matmul,4,64,64,64,,,\nmatmul,,16,4096,4096,int4,128,1\n",
)
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "utf-7", "cp500")
ENDS = ("\n", "\n", "\r\n", "\r", "\n\n", "\x0b", "\u2028", "")


def contents(generator):
    """The bytes of one file: some cells changed, added, left out or in another order, at times some bytes, too."""
    if generator.random() < 0.05:
        return generator.randbytes(generator.randrange(3000))
    lines = [line.split(",") for line in generator.choice(SOUND).splitlines()]
    for _ in range(generator.randrange(1, 5)):
        cells = generator.choice(lines[generator.random() < 0.8 :])  # mostly not the header
        at, more = generator.randrange(len(cells) + 1), generator.random() < 0.9
        cells[at : at + generator.randrange(3)] = [generator.choice(generator.choice((WORDS, WORDS, HOSTILE)))] * more
        if generator.random() < 0.1:
            generator.shuffle(cells)
    text = generator.choice(ENDS if generator.random() < 0.2 else ENDS[:3]).join(",".join(cells) for cells in lines)
    text += generator.choice(("\n", "", "\n#comment\n", "\n,,,\n", "\x1a"))
    data = text.encode(generator.choice(ENCODINGS), "replace")
    if generator.random() < 0.1:
        data = generator.choice([codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"\x00", b"\xff"]) + data
    if data and generator.random() < 0.1:
        at = generator.randrange(len(data))
        data = data[:at] + generator.randbytes(2) + data[at + generator.randrange(3) :]
    return data
