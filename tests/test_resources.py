"""The ptxas report and the disassembly, from real output of both tools."""

from __future__ import annotations

import pytest

from gensor_kernels.build import nvrtc, resources

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_87'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 1024 bytes smem, 360 bytes cmem[0]
ptxas info    : Compiling entry function 'kernel' for 'sm_87'
ptxas info    : Function properties for kernel
ptxas         .     112 bytes stack frame, 208 bytes spill stores, 160 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 112 bytes cumulative stack size, 380 bytes cmem[0]
"""

# One loop of each kind: an outer one around a copy, matrix and scalar loop, and accesses of every width.
KERNEL = """
struct alignas(16) Vector { float x, y, z, w; };
extern __shared__ __align__(16) unsigned char shared_memory[];
extern "C" __global__ void matrix(const Vector* a, const unsigned short* h, float* c, int n) {
    float d[4] = {};
    Vector* s = (Vector*)shared_memory;
    unsigned short* t = (unsigned short*)(shared_memory + 4096);
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        s[threadIdx.x] = a[k * 256 + threadIdx.x];
        t[threadIdx.x] = h[k * 256 + threadIdx.x];
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < n; ++j) {
            Vector v = s[threadIdx.x ^ j];
            unsigned u = t[threadIdx.x ^ j];
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                : "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)), "r"(u));
        }
        __syncthreads();
    }
    c[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void scalar(const double2* a, double* c, int n) {
    double sum = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) { double2 v = a[k * 256 + threadIdx.x]; sum = fma(v.x, v.y, sum); }
    c[threadIdx.x] = sum;
}
extern "C" __global__ void epilogue(const float* a, float* c, int n) {
    float sum = 0, *s = (float*)shared_memory;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        s[threadIdx.x] = a[k * 256 + threadIdx.x];
        __syncthreads();
        sum = fmaf(s[threadIdx.x ^ 1], s[threadIdx.x ^ 2], sum);
        __syncthreads();
    }
#pragma unroll 1
    for (int j = 0; j < n; ++j) sum = fmaf(fmaf(fmaf(sum, sum, 3.f), sum, 5.f), sum, a[j]);
    c[threadIdx.x] = sum;
}
extern "C" __global__ void straight(char* c) { c[threadIdx.x] = 1; }
"""

needs_nvdisasm = pytest.mark.skipif(resources.find_nvdisasm() is None, reason="nvdisasm is not installed")


def test_report():
    entries = resources.parse_ptxas(REPORT)
    assert entries["kernel"] == resources.EntryResources(255, 112, 208, 160, 0)
    assert entries["second"] == resources.EntryResources(8, 0, 0, 0, 1024)
    assert entries["kernel"].spill_bytes == 368
    assert resources.parse_ptxas("ptxas info    : 0 bytes gmem") == {}


@pytest.fixture(scope="module", params=["sm_75", "sm_87", "sm_90a", "sm_120"])
def sass(request):
    if resources.find_nvdisasm() is None:
        pytest.skip("nvdisasm is not installed")
    binary = nvrtc.compile_cubin(KERNEL, request.param)
    assert binary.error is None
    return resources.disassemble(binary.cubin)


def test_hot_loop_is_the_innermost_with_the_mathematics(sass):
    matrix = sass["matrix"].hot_loop
    assert matrix["HMMA"] == 1 and matrix["LDS"] == 2 and "LDG" not in matrix and "BAR" not in matrix
    assert sass["scalar"].hot_loop["DFMA"] == 1 and sass["scalar"].hot_loop["LDG"] == 1
    assert sass["straight"].hot_loop == {}


def test_a_loop_with_a_barrier_is_hotter_than_one_with_more_mathematics(sass):
    hot = sass["epilogue"].hot_loop
    assert hot["FFMA"] == 1 and hot["BAR"] == 2 and hot["LDS"] == 2
    assert sass["epilogue"].opcodes["FFMA"] >= 4


def test_access_widths_over_the_whole_entry(sass):
    matrix = sass["matrix"]
    assert matrix.accesses == {
        "LDG": {2: 1, 16: 1},
        "LDS": {2: 1, 8: 1},  # half of the vector is never used
        "STG": {4: 1},
        "STS": {2: 1, 16: 1},
    }
    assert matrix.widths(resources.GLOBAL_ACCESSES) == {2: 1, 4: 1, 16: 1}
    assert matrix.widths(resources.SHARED_ACCESSES) == {2: 2, 8: 1, 16: 1}
    assert sass["scalar"].accesses == {"LDG": {16: 1}, "STG": {8: 1}}
    assert sass["straight"].accesses == {"STG": {1: 1}}


def test_asynchronous_copies_count_by_their_width():
    text = (
        '\t.section .text.k,"ax",@progbits\n.text.k:\n'
        "        /*0010*/                   LDGSTS.E.BYPASS.LTC128B.128 [R3], [R4.64], P0 ;\n"
        "        /*0020*/               @P1 LDGSTS.E.LTC128B [R3], [R4.64] ;\n"
        "        /*0030*/              @!P2 LDG.E.64.CONSTANT R8, [R4.64] ;\n"
        "        /*0040*/                   STG.E.U16 [R4.64], R5 ;\n"
    )
    assert resources.parse_sass(text)["k"].accesses == {
        "LDG": {8: 1},
        "LDGSTS": {4: 1, 16: 1},
        "STG": {2: 1},
    }


@needs_nvdisasm
def test_many_keeps_the_order_and_refuses_what_is_no_cubin():
    cubin = nvrtc.compile_cubin(KERNEL, "sm_87").cubin
    first, refused, again = resources.disassemble_many([cubin, b"not a cubin", cubin], 2)
    assert set(first) == {"epilogue", "matrix", "scalar", "straight"} and refused is None and again is first


def test_without_the_tool_there_are_no_counts(monkeypatch):
    monkeypatch.setattr(resources, "find_nvdisasm", lambda: None)
    assert resources.disassemble(b"\x7fELF") is None
