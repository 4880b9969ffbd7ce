"""Shapes files as people, spreadsheets and attackers make them: a mutated sound file, or one made of odd parts."""

import codecs
import csv
import io

OPS = (
    *("", "matmul "),
    *"matmul batched_matmul gemv grouped_matmul ragged_matmul conv2d conv1d conv2d_transpose".split(),
    *"depthwise_conv2d max_pool2d avg_pool2d global_avg_pool2d adaptive_avg_pool2d softmax reduce_sum".split(),
    *"argmax layernorm rmsnorm relu gelu rnn_lstm attention attention_masked swiglu elementwise".split(),
    *"quantised_int4 dual_gemm MATMUL nothing __import__".split(),
)
COLUMNS = (
    *("", "op "),
    *"op name m n k batch dtype dtype_b acc out epilogue count trans_a trans_b order group zeros".split(),
    *"groups h w c r s k_out stride_h stride_w dilation_h pad_top pad_bottom pad_left pad_right layout".split(),
    *"weights ceil_mode count_include_pad shape axes hidden timesteps heads kv_heads queries keys head".split(),
    *"causal layout_a layout_b align_a align_b align_c unsupported note M __class__".split(),
)
NUMBERS = (
    *(" 8 ", "9" * 5000, "1 2"),
    *"0 1 2 7 64 127 128 4096 65536 2147483647 2147483648 4294967296 1000000000 -1 +1 1.0 1e9 1_000".split(),
    *"0x10 007 １２ ٣ ² ½ ∞ nan inf 1,5 1'000 999999999999999999 9999999999999999999 --1 None true".split(),
)
WORDS = (
    *("bias_" * 7, "1x" * 40),
    *"fp16 fp32 tf32 bf16 int8 int4 fp4_e2m1 fp8_e4m3 complex64 complex64_3m float32 row col nhwc nchw".split(),
    *"NHWC krsc none relu bias_relu bias_gelu_add swiglu rmsnorm softmax scale;scale _ ; 1x2x3 2;3 x".split(),
    *"0x0 lower_right m s*".split(),
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


def cell(generator):
    return generator.choice(generator.choices((NUMBERS, WORDS, HOSTILE, ("",)), (4, 3, 2, 1))[0])


def assemble(generator):
    """Rows of an op with columns of any op; of some, nothing is quoted that should be."""
    names = generator.sample(COLUMNS, generator.randrange(1, 16))
    if generator.random() < 0.9 and "op" not in names:
        names.insert(generator.randrange(len(names) + 1), "op")
    if generator.random() < 0.05:
        names.append(generator.choice(names))
    rows = [names]
    for _ in range(generator.randrange(5)):
        values = [generator.choice(OPS) if name == "op" else cell(generator) for name in names]
        rows.append(values[: generator.randrange(len(values) + 1)] if generator.random() < 0.1 else values)
    if generator.random() < 0.3:
        return generator.choice(ENDS).join(",".join(row) for row in rows)
    text = io.StringIO()
    csv.writer(text, delimiter=generator.choice(",,,,,,;\t|"), lineterminator=generator.choice(ENDS)).writerows(rows)
    return text.getvalue()


def alter(generator):
    """A sound file with some cells changed, added, left out or in another order."""
    lines = [line.split(",") for line in generator.choice(SOUND).splitlines()]
    for _ in range(generator.randrange(1, 4)):
        cells = generator.choice(lines)
        at, more = generator.randrange(len(cells) + 1), generator.random() < 0.9
        cells[at : at + generator.randrange(3)] = [cell(generator)] * more
        if generator.random() < 0.2:
            generator.shuffle(cells)
    text = generator.choice(ENDS[:4]).join(",".join(cells) for cells in lines)
    return text + generator.choice(("\n", "", "\n#comment\n", "\n,,,\n", "\x1a"))


def long(generator):
    """Few long lines: ten megabytes of one cell, of cells, of blanks, of quotes."""
    part = generator.choice(["x", "1,", " ", '"', "matmul,", "\t", '""', "#"])
    size = 10_000_000 if generator.random() < 0.1 else 300_000
    return "op,m,n,k\nmatmul,1,2," + part * (size // len(part)) + "\nmatmul,1,2,3\n"


def contents(generator):
    """The bytes of one file: long ones and junk are rare."""
    if generator.random() < 0.05:
        return generator.randbytes(generator.randrange(3000))
    make = generator.choices((long, assemble, alter), (0.002, 0.5, 0.5))[0]
    data = make(generator).encode(generator.choice(ENCODINGS), "replace")
    if generator.random() < 0.1:
        data = generator.choice([codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"\x00", b"\xff"]) + data
    if data and generator.random() < 0.1:
        at = generator.randrange(len(data))
        data = data[:at] + generator.randbytes(2) + data[at + generator.randrange(3) :]
    return data
