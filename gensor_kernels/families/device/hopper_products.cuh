// The products of warpgroups in PTX, one overload per N, since an instruction names all of its registers. hopper.cuh
// documents them. Of 16-bit types N is any multiple of 8, of the others of 16.
#pragma once

#define WGMMA_NAMES_8 "%0, %1, %2, %3"
#define WGMMA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_40 WGMMA_NAMES_32 ", %16, %17, %18, %19"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ", %24, %25, %26, %27"
#define WGMMA_NAMES_64 WGMMA_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_72 WGMMA_NAMES_64 ", %32, %33, %34, %35"
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_88 WGMMA_NAMES_80 ", %40, %41, %42, %43"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_104 WGMMA_NAMES_96 ", %48, %49, %50, %51"
#define WGMMA_NAMES_112 WGMMA_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_120 WGMMA_NAMES_112 ", %56, %57, %58, %59"
#define WGMMA_NAMES_128 WGMMA_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_136 WGMMA_NAMES_128 ", %64, %65, %66, %67"
#define WGMMA_NAMES_144 WGMMA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_NAMES_152 WGMMA_NAMES_144 ", %72, %73, %74, %75"
#define WGMMA_NAMES_160 WGMMA_NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_NAMES_168 WGMMA_NAMES_160 ", %80, %81, %82, %83"
#define WGMMA_NAMES_176 WGMMA_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_NAMES_184 WGMMA_NAMES_176 ", %88, %89, %90, %91"
#define WGMMA_NAMES_192 WGMMA_NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_200 WGMMA_NAMES_192 ", %96, %97, %98, %99"
#define WGMMA_NAMES_208 WGMMA_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_NAMES_216 WGMMA_NAMES_208 ", %104, %105, %106, %107"
#define WGMMA_NAMES_224 WGMMA_NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_NAMES_232 WGMMA_NAMES_224 ", %112, %113, %114, %115"
#define WGMMA_NAMES_240 WGMMA_NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_NAMES_248 WGMMA_NAMES_240 ", %120, %121, %122, %123"
#define WGMMA_NAMES_256 WGMMA_NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define WGMMA_8(c, i) WGMMA_4(c, i), WGMMA_4(c, i + 4)
#define WGMMA_SUMS_8(c) WGMMA_4(c, 0)
#define WGMMA_SUMS_16(c) WGMMA_8(c, 0)
#define WGMMA_SUMS_24(c) WGMMA_SUMS_16(c), WGMMA_4(c, 8)
#define WGMMA_SUMS_32(c) WGMMA_SUMS_16(c), WGMMA_8(c, 8)
#define WGMMA_SUMS_40(c) WGMMA_SUMS_32(c), WGMMA_4(c, 16)
#define WGMMA_SUMS_48(c) WGMMA_SUMS_32(c), WGMMA_8(c, 16)
#define WGMMA_SUMS_56(c) WGMMA_SUMS_48(c), WGMMA_4(c, 24)
#define WGMMA_SUMS_64(c) WGMMA_SUMS_48(c), WGMMA_8(c, 24)
#define WGMMA_SUMS_72(c) WGMMA_SUMS_64(c), WGMMA_4(c, 32)
#define WGMMA_SUMS_80(c) WGMMA_SUMS_64(c), WGMMA_8(c, 32)
#define WGMMA_SUMS_88(c) WGMMA_SUMS_80(c), WGMMA_4(c, 40)
#define WGMMA_SUMS_96(c) WGMMA_SUMS_80(c), WGMMA_8(c, 40)
#define WGMMA_SUMS_104(c) WGMMA_SUMS_96(c), WGMMA_4(c, 48)
#define WGMMA_SUMS_112(c) WGMMA_SUMS_96(c), WGMMA_8(c, 48)
#define WGMMA_SUMS_120(c) WGMMA_SUMS_112(c), WGMMA_4(c, 56)
#define WGMMA_SUMS_128(c) WGMMA_SUMS_112(c), WGMMA_8(c, 56)
#define WGMMA_SUMS_136(c) WGMMA_SUMS_128(c), WGMMA_4(c, 64)
#define WGMMA_SUMS_144(c) WGMMA_SUMS_128(c), WGMMA_8(c, 64)
#define WGMMA_SUMS_152(c) WGMMA_SUMS_144(c), WGMMA_4(c, 72)
#define WGMMA_SUMS_160(c) WGMMA_SUMS_144(c), WGMMA_8(c, 72)
#define WGMMA_SUMS_168(c) WGMMA_SUMS_160(c), WGMMA_4(c, 80)
#define WGMMA_SUMS_176(c) WGMMA_SUMS_160(c), WGMMA_8(c, 80)
#define WGMMA_SUMS_184(c) WGMMA_SUMS_176(c), WGMMA_4(c, 88)
#define WGMMA_SUMS_192(c) WGMMA_SUMS_176(c), WGMMA_8(c, 88)
#define WGMMA_SUMS_200(c) WGMMA_SUMS_192(c), WGMMA_4(c, 96)
#define WGMMA_SUMS_208(c) WGMMA_SUMS_192(c), WGMMA_8(c, 96)
#define WGMMA_SUMS_216(c) WGMMA_SUMS_208(c), WGMMA_4(c, 104)
#define WGMMA_SUMS_224(c) WGMMA_SUMS_208(c), WGMMA_8(c, 104)
#define WGMMA_SUMS_232(c) WGMMA_SUMS_224(c), WGMMA_4(c, 112)
#define WGMMA_SUMS_240(c) WGMMA_SUMS_224(c), WGMMA_8(c, 112)
#define WGMMA_SUMS_248(c) WGMMA_SUMS_240(c), WGMMA_4(c, 120)
#define WGMMA_SUMS_256(c) WGMMA_SUMS_240(c), WGMMA_8(c, 120)
// `operands` are the numbers of the operands that hold the descriptors and KEPT; `more` is the text after them.
#define WGMMA_TYPE(n, c, types, operands, more)                                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n types " {" WGMMA_NAMES_##n "}, " operands more ";"             \
                 : WGMMA_SUMS_##n(c)                                                                                   \
                 : "l"(descriptor_a), "l"(descriptor_b), "n"(KEPT), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED))
#define WGMMA_OF(n, A, B, T, c, types, operands, more)                                                                 \
    template <int A_TRANSPOSED, int B_TRANSPOSED, int KEPT>                                                            \
    DEVICE void wgmma(T(&d)[n / 2], u64 descriptor_a, u64 descriptor_b, A, B) {                                        \
        static_assert(sizeof(A) == 2 || (!A_TRANSPOSED && !B_TRANSPOSED), "Only 16-bit operands are transposed.");     \
        WGMMA_TYPE(n, c, types, operands, more);                                                                       \
    }
#define WGMMA_FLOAT8(n, A, B, types, operands) WGMMA_OF(n, A, B, float, "+f", "k32.f32." types, operands, ", 1, 1")
#define WGMMA_HALVES(n, operands, transposed)                                                                          \
    WGMMA_OF(n, half_t, half_t, float, "+f", "k16.f32.f16.f16", operands, ", 1, 1, " transposed)                       \
    WGMMA_OF(n, bfloat16_t, bfloat16_t, float, "+f", "k16.f32.bf16.bf16", operands, ", 1, 1, " transposed)
#define WGMMA(n, operands, transposed)                                                                                 \
    WGMMA_HALVES(n, operands, transposed)                                                                              \
    WGMMA_OF(n, float, float, float, "+f", "k8.f32.tf32.tf32", operands, ", 1, 1")                                     \
    WGMMA_OF(n, i8, i8, i32, "+r", "k32.s32.s8.s8", operands, "")                                                      \
    WGMMA_FLOAT8(n, e4m3_t, e4m3_t, "e4m3.e4m3", operands)                                                             \
    WGMMA_FLOAT8(n, e4m3_t, e5m2_t, "e4m3.e5m2", operands)                                                             \
    WGMMA_FLOAT8(n, e5m2_t, e4m3_t, "e5m2.e4m3", operands)                                                             \
    WGMMA_FLOAT8(n, e5m2_t, e5m2_t, "e5m2.e5m2", operands)
WGMMA_HALVES(8, "%4, %5, %6", "%7, %8")
WGMMA(16, "%8, %9, %10", "%11, %12")
WGMMA_HALVES(24, "%12, %13, %14", "%15, %16")
WGMMA(32, "%16, %17, %18", "%19, %20")
WGMMA_HALVES(40, "%20, %21, %22", "%23, %24")
WGMMA(48, "%24, %25, %26", "%27, %28")
WGMMA_HALVES(56, "%28, %29, %30", "%31, %32")
WGMMA(64, "%32, %33, %34", "%35, %36")
WGMMA_HALVES(72, "%36, %37, %38", "%39, %40")
WGMMA(80, "%40, %41, %42", "%43, %44")
WGMMA_HALVES(88, "%44, %45, %46", "%47, %48")
WGMMA(96, "%48, %49, %50", "%51, %52")
WGMMA_HALVES(104, "%52, %53, %54", "%55, %56")
WGMMA(112, "%56, %57, %58", "%59, %60")
WGMMA_HALVES(120, "%60, %61, %62", "%63, %64")
WGMMA(128, "%64, %65, %66", "%67, %68")
WGMMA_HALVES(136, "%68, %69, %70", "%71, %72")
WGMMA(144, "%72, %73, %74", "%75, %76")
WGMMA_HALVES(152, "%76, %77, %78", "%79, %80")
WGMMA(160, "%80, %81, %82", "%83, %84")
WGMMA_HALVES(168, "%84, %85, %86", "%87, %88")
WGMMA(176, "%88, %89, %90", "%91, %92")
WGMMA_HALVES(184, "%92, %93, %94", "%95, %96")
WGMMA(192, "%96, %97, %98", "%99, %100")
WGMMA_HALVES(200, "%100, %101, %102", "%103, %104")
WGMMA(208, "%104, %105, %106", "%107, %108")
WGMMA_HALVES(216, "%108, %109, %110", "%111, %112")
WGMMA(224, "%112, %113, %114", "%115, %116")
WGMMA_HALVES(232, "%116, %117, %118", "%119, %120")
WGMMA(240, "%120, %121, %122", "%123, %124")
WGMMA_HALVES(248, "%124, %125, %126", "%127, %128")
WGMMA(256, "%128, %129, %130", "%131, %132")
#undef WGMMA
#undef WGMMA_HALVES
#undef WGMMA_FLOAT8
#undef WGMMA_OF
#undef WGMMA_TYPE
// Products with A in registers. `more` is the text after the operands: of 16-bit types whether B is transposed.
#define WGMMA_HELD(n, type, types, operands, more)                                                                     \
    template <int B_TRANSPOSED, int KEPT>                                                                              \
    DEVICE void wgmma_held(float (&d)[n / 2], const u32(&a)[4], u64 descriptor_b, type) {                              \
        static_assert(sizeof(type) == 2 || !B_TRANSPOSED, "Only 16-bit operands are transposed.");                     \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n types " {" WGMMA_NAMES_##n "}, " operands more ";"         \
                     : WGMMA_SUMS_##n("+f")                                                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor_b), "n"(KEPT), "n"(B_TRANSPOSED));   \
    }
#define WGMMA_ALL_HELD(n, operands, transposed)                                                                        \
    WGMMA_HELD(n, half_t, "k16.f32.f16.f16", operands, ", 1, 1, " transposed)                                          \
    WGMMA_HELD(n, bfloat16_t, "k16.f32.bf16.bf16", operands, ", 1, 1, " transposed)                                    \
    WGMMA_HELD(n, float, "k8.f32.tf32.tf32", operands, ", 1, 1")
WGMMA_ALL_HELD(16, "{%8, %9, %10, %11}, %12, %13", "%14")
WGMMA_ALL_HELD(32, "{%16, %17, %18, %19}, %20, %21", "%22")
WGMMA_ALL_HELD(48, "{%24, %25, %26, %27}, %28, %29", "%30")
WGMMA_ALL_HELD(64, "{%32, %33, %34, %35}, %36, %37", "%38")
WGMMA_ALL_HELD(80, "{%40, %41, %42, %43}, %44, %45", "%46")
WGMMA_ALL_HELD(96, "{%48, %49, %50, %51}, %52, %53", "%54")
WGMMA_ALL_HELD(112, "{%56, %57, %58, %59}, %60, %61", "%62")
WGMMA_ALL_HELD(128, "{%64, %65, %66, %67}, %68, %69", "%70")
WGMMA_ALL_HELD(144, "{%72, %73, %74, %75}, %76, %77", "%78")
WGMMA_ALL_HELD(160, "{%80, %81, %82, %83}, %84, %85", "%86")
WGMMA_ALL_HELD(176, "{%88, %89, %90, %91}, %92, %93", "%94")
WGMMA_ALL_HELD(192, "{%96, %97, %98, %99}, %100, %101", "%102")
WGMMA_ALL_HELD(208, "{%104, %105, %106, %107}, %108, %109", "%110")
WGMMA_ALL_HELD(224, "{%112, %113, %114, %115}, %116, %117", "%118")
WGMMA_ALL_HELD(240, "{%120, %121, %122, %123}, %124, %125", "%126")
WGMMA_ALL_HELD(256, "{%128, %129, %130, %131}, %132, %133", "%134")
#undef WGMMA_ALL_HELD
#undef WGMMA_HELD
