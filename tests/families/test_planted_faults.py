"""Verification refuses Programs of kernels with planted faults: one text in place of another."""

import pytest

from gensor_kernels.devices.emulator import build
from gensor_kernels.families.core import params
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import block_scaled, matmul, ragged
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.problem import Failure, Problem
from tests.campaign_size import sample
from tests.families.lattices import MMA, WGMMA
from tests.mutator.engine.configuration import Changed
from tests.mutator.programs.contraction import block_configurations
from tests.mutator.programs.rows import rows_configurations
from tests.mutator.programs.tcgen05 import (
    paired_configurations,
    rewritten_configurations,
    scaled_configurations,
    tcgen05_configurations,
)
from tests.mutator.programs.wgmma import aligned_configurations, wgmma_configurations
from tests.mutator.programs.window import groups_configurations

from .verified import small, verdict_without
from .workloads.images import FIRST, image, packed_configurations, patch_configurations, strip_configurations

FLOATS = FAMILIES["contraction_floats_wgmma"]
SCALED, PRODUCT = block_scaled.workload(512, 512, 1024), matmul.workload(512, 511, 1003, dtype="float32")
RAGGED, HALF = ragged.workload(8, 512, 512, 512), matmul.workload(256, 256, 4096)
WARPGROUPS, EIGHT_BIT = (
    matmul.workload(512, 512, 512, trans_b=True),
    matmul.workload(512, 512, 512, dtype="float8_e4m3fn", out="bfloat16", trans_b=True),
)
TWO = {"vector_c": 16, "consumers": 2}
FOUR = {"block_m": 256, "block_n": 16, "consumers": 1}
BLOCKS = {"block_k": 128, "vector_c": 16, "block_m": 128, "consumers": 2}


def narrow(columns):
    """A Program of mma.sync whose warps have an odd number of fragments along n."""
    program = MMA.starters(HALF, lookup("sm_75"))[0]
    each = program.replace(block_m=16, warp_m=16, block_n=2 * columns, warp_n=columns)
    return candidate(MMA, each, HALF), HALF


def configuration(made, name):
    [each] = [each for each in made() if each.name == name]
    return each.candidate, each.workload


#: Kernel -> its Program and Workload, made when they are needed.
PROGRAMS = {
    "one fragment": lambda: narrow(8),
    "three fragments": lambda: narrow(24),
    "warpgroups": lambda: (small(WGMMA, WARPGROUPS, **TWO, block_m=128), WARPGROUPS),
    "warpgroups apart": lambda: configuration(wgmma_configurations, "apart"),
    "warpgroups in turns": lambda: (small(WGMMA, WARPGROUPS, **TWO, persistent=2), WARPGROUPS),
    "pairs": lambda: (small(WGMMA, WARPGROUPS, vector_c=16, cluster=1, block_n=16), WARPGROUPS),
    "walking pairs": lambda: (small(WGMMA, WARPGROUPS, vector_c=16, cluster=1, persistent=1, block_n=16), WARPGROUPS),
    "pixels of all images": lambda: configuration(packed_configurations, "packed single columns"),
    "pixels of all images, unchanged": lambda: configuration(packed_configurations, "packed unchanged"),
    "strip": lambda: configuration(strip_configurations, "strip last"),
    "patch, short rows": lambda: configuration(patch_configurations, "patch bytes, short rows"),
    "patch, merged groups": lambda: configuration(patch_configurations, "patch merged"),
    "groups": lambda: configuration(groups_configurations, "channels"),
    "groups of planes": lambda: configuration(groups_configurations, "planes"),
    "groups, any window": lambda: configuration(groups_configurations, "channels, any"),
    "scales": lambda: (small(WGMMA, SCALED, **BLOCKS, split_k=2), SCALED),
    "two scales": lambda: (small(WGMMA, SCALED, **BLOCKS, block_n=112), SCALED),
    "overlapped": lambda: (small(WGMMA, EIGHT_BIT, vector_c=16, block_k=128, overlapped=1), EIGHT_BIT),
    "overlapped tiles": lambda: (small(WGMMA, EIGHT_BIT, **BLOCKS | FOUR, overlapped=1), EIGHT_BIT),
    "turned bytes": lambda: configuration(aligned_configurations, "turned, 16 bytes"),
    "turned floats": lambda: configuration(aligned_configurations, "turned floats"),
    "floats": lambda: (small(FLOATS, PRODUCT, vector_c=4), PRODUCT),
    "floats of images": lambda: (small(FLOATS, image(), vector_c=4), image()),
    "floats of images, channels first": lambda: (small(FLOATS, image(**FIRST), vector_c=4), image(**FIRST)),
    "scan": lambda: configuration(rows_configurations, "scan"),
    "split scan": lambda: configuration(rows_configurations, "scan, split"),
    "split scan of columns": lambda: configuration(rows_configurations, "scan of columns, split"),
    **{
        f"blocks, {name}": lambda name=name: configuration(block_configurations, name)
        for name in (
            *("nvfp4", "two of nvfp4", "mxfp4", "two of mxfp8"),
            *("scaled nvfp4", "scaled mxfp4", "scaled mxfp8", "8-bit floats, scales of one"),
            *("floats", "floats of one row of fragments", "floats of many rows"),
        )
    },
    **{
        f"tensor memory, {name}": lambda name=name: configuration(tcgen05_configurations, name)
        for name in (
            *("k-contiguous", "pair", "gate of a pair", "n-contiguous"),
            *("scales of blocks, split", "scales of blocks, pair"),
        )
    },
    **{
        f"scales, {name}": lambda name=name: configuration(scaled_configurations, name)
        for name in ("mxfp8", "mxfp8 of a pair", "mxfp4, split", "nvfp4", "nvfp4 of a pair")
    },
    **{
        f"tensor memory, {name}": lambda name=name: configuration(paired_configurations, name)
        for name in ("pairs along m", "pairs along n", "pairs along m, mxfp8")
    },
    "tensor memory, parts": lambda: configuration(rewritten_configurations, "parts of a pair"),
    "rows of groups": lambda: (small(WGMMA, RAGGED, vector_c=16, persistent=1), RAGGED),
}
#: Kernel -> what is wrong -> the text, and the text in its place: faults that the mutator does not make.
FAULTS = {
    "one fragment": {"an address of a lane without a row": ("ODD && COUNT == 1 ? 0 : bit4", "bit4")},
    "three fragments": {"a row of the next tile": ("2 * read - (ODD && read > 0 ? 1 : 0)", "2 * read")},
    "warpgroups": {
        "a buffer given back too early": ("wgmma_wait<1>();", "wgmma_wait<2>();"),
        "too few bytes": ("SLOT_BYTES * (PAIR ? 2 : 1)", "SLOT_BYTES - 16"),
        "an unaligned tile": ("constexpr int RING = ATOM", "constexpr int RING = 512"),
        "a tile too low": ("matrix_descriptor(tile + first * 128, 16", "matrix_descriptor(tile + 128, 16"),
        "registers that are not given": ("give_registers<ENTRY, GIVEN>();", ""),
    },
    "warpgroups apart": {
        "waiting for what no buffer has room for": ("group * (STAGES - 1) /", "group * STAGES /"),
        "waiting for steps after the last": ("steps - 1);\n    if (apart", "steps);\n    if (apart"),
    },
    "warpgroups in turns": {
        "multiplying out of turn": ("mbarrier_wait(turn_of(group)", "(void)(turn_of(group)"),
        "a turn that is not passed": (
            "while (within(++step, steps));\n    pass_turn();",
            "while (within(++step, steps));",
        ),
        "buffers of another's tile": ("turn.skip(steps);", ""),
        "the last buffer kept": ("if constexpr (PERSISTENT)\n            release(before);", ""),
        "slabs over the ring": ("(PERSISTENT ? STAGES * SLOT_BYTES : 0)", "0"),
    },
    "pairs": {
        "no meeting first": (
            "make_ring();\n    }\n    if constexpr (CLUSTER)\n        cluster_begin();",
            "make_ring();\n    }",
        ),
        "leaving too early": ("(CLUSTER && !PERSISTENT)\n        cluster_barrier();", "(false)\n        ;"),
        "a buffer that the other block still reads": ("READING_WARPS * PEERS);", "READING_WARPS);"),
        "a buffer kept from the other block": ("if (lane < PEERS)", "if (lane == rank_in_cluster())"),
        "half a tile": ("ROWS / FETCHERS) : 0", "0) : 0"),
    },
    "walking pairs": {
        "leaving the last tile too early": ("if constexpr (CLUSTER && PERSISTENT)\n        cluster_barrier();", ""),
    },
    "pixels of all images": {
        "every output in the first image": ("UNIT ? 1 : params.c_n, params.c_batch[1]", "UNIT ? 1 : params.c_n, 0"),
        "the operand of the first image": (
            "to_column(params, at.column, step.n_stride, step.batch_stride[1])",
            "to_column(params, at.column, step.n_stride, 0)",
        ),
        "a batch entry of one image": (": params.n) / (window", ": window.rows[0] * window.rows[1]) / (window"),
        "the first channels once more": ("(i64)(first_chunk + chunk) * CHUNK", "(i64)chunk * CHUNK"),
        "the channels after the last one": ("* CHUNK + e, left)", "* 0, left)"),
    },
    "pixels of all images, unchanged": {
        "every output in the first image": ("column_stride, params.c_batch[1])", "column_stride, 0)"),
        "the warp's first column forgotten": ("ALL_IMAGES ? first + column : column", "column"),
    },
    "strip": {
        # The filters' places that belong to no segment hold ones.
        "first octet not masked": ("word &= in_line == 0 ? mask[0] : 0xffffffffu;", ""),
        "last octet not masked": ("word &= in_line == OCTETS - 1 ? mask[1] : 0xffffffffu;", ""),
        "lines not begun at an octet": ("own.element = begin & ~(EIGHT - 1);", "own.element = begin;"),
        "accesses of 16 bytes": ("alignment % 16 == 0 ? 16 : alignment % 8 == 0 ? 8", "alignment % 8 == 0 ? 16"),
        "accesses of 4 bytes": ("alignment % 4 == 0 ? 4 : ELEMENT", "4"),
    },
    "patch, short rows": {
        "rows of the window": ("row * own.row + column", "row * own.wide + column"),
        "too many rows": ("within(row, own.tall) && within(column, own.wide)", "within(column, own.wide)"),
        "too many columns": ("within(row, own.tall) && within(column, own.wide)", "within(row, own.tall)"),
    },
    "patch, merged groups": {
        "words of the first group": ("word = diagonal.word_of_group(filter, word);", ""),
        "filters of the first group": ("(u32)(first + filter) / (u32)filters", "(u32)filter / (u32)filters"),
        "a word too many": ("within((u32)word, (u32)diagonal.words)", "within((u32)word, (u32)diagonal.words + 1)"),
        "signed words": ("within((u32)word, (u32)diagonal.words)", "within(word, diagonal.words)"),
        "steps of one group": ("(tile.k_end - tile.k_begin) / MERGED_GROUPS", "tile.k_end - tile.k_begin"),
        "no zeros between groups": (
            "store_shared(arranged + (item * 4 + tap * (PLANES * BLOCK_M * 16)), Vec<4>::zero())",
            "",
        ),
    },
    "groups": {
        "filters of the first group": ("tile.group * call.group_stride", "0"),
        "channels of the first group": ("spot.tile.group * group", "0"),
        "the tile before": ("first + lane)", "first + lane - 1)"),
        "columns of x": ("x[across * STEP + s]", "x[across + STEP + s - 1]"),
        "no next row": ("r = 0, channel += CHANNELS", "channel += CHANNELS"),
        "tiles too near": ("(depth * (THREAD_C / READ) | 1) * READ", "depth * (THREAD_C / READ)"),
        "padding of one side": ("- w.pad[0], left", "- w.pad[1], left"),
        "a line too few": (
            "within(lines.channel, call.channels))\n            lines",
            "within(lines.channel, 1))\n            lines",
        ),
        "group of the epilogue": ("spot.image, spot.tile.group}", "spot.image, 0}"),
    },
    "groups of planes": {
        "channels before rows": (
            "(channel * window[0] + r) * window[1] + s",
            "(r * window[1] + s) * channels + channel",
        ),
        "image of the epilogue": ("CHANNELS_LAST ? 0 : spot.image, spot", "0, spot"),
    },
    "groups, any window": {
        "rows of a block": ("spot.row += ROW_THREADS;", "spot.row += 1;"),
        "columns apart": ("pace = WINDOW ? 1 : w.step[1]", "pace = 1"),
        "dilation": ("left + s * w.dilation[1]", "left + s"),
    },
    "scales": {
        "one row's scale": ("factor[i][half][0]", "factor[i][0][0]"),
        "first columns' scale": ("(panel * panel_stride +", "(0 * panel_stride +"),
        "first step's scale": ("of_b = of_b + b_stride, --steps;", "--steps;"),
        "scales of a part": ("const int step = tile.k_begin / BLOCK_K,", "const int step = 0,"),
        "another warpgroup's": ("31, first = tile.row + row +", "31, first = tile.row +"),
    },
    "two scales": {
        "border": ("(v >> 3) * 16 < border", "(v >> 3) * 16 <= border"),
        "first scale": ("(v >> 3) * 16 < border", "true"),
        "stride of scales": ("of_b + which * panel_stride", "of_b"),
        "one row's scale": ("factor[i][half][last]", "factor[i][0][last]"),
        "scales beyond the last": ("left && within(which, panels)", "left"),
        "tiles' columns": ("- (tile.column & (SCALED_COLUMNS - 1))", ""),
    },
    "overlapped": {
        "no wait for the first products": ("end<0>(0);\n        }", "}"),
        "no wait for the last products": ("end<0>(ROUND_TILES - 1);", ""),
        "sums that products still write": ("end<1>(ROUND_TILES - 1);", "end<2>(ROUND_TILES - 1);"),
        "a buffer that is still read": ("release(buffer);", "release(slot);"),
        "a step left out": ("if (steps % ROUND_STEPS) {", "if (false) {"),
        "one set of sums": ("add(ROUND_TILES - 1, before);", "add(0, before);"),
    },
    "overlapped tiles": {
        "sums that products still write": ("end<1>(at - 1);", "end<2>(at - 1);"),
        "another tile's sums": ("(sums[i], products[at % 2], i);", "(sums[0], products[at % 2], i);"),
        "a buffer given back too often": ("if (i == TILES_M - 1)\n            release(buffer);", "release(buffer);"),
    },
    "turned bytes": {
        "bytes of another line": ("j % 4 < 2 ? 0x5140 : 0x7362", "j % 4 < 2 ? 0x5140 : 0x5140"),
        "elements in another order": ("j % 2 ? 0x7632 : 0x5410", "j % 2 ? 0x7632 : 0x1054"),
        "chunks of one piece": ("(chunk ^ line / LINES % 8)", "(line / LINES % 8)"),
        "lines past the end": ("within(line, (u32)lines.count) && within(element", "within(element"),
    },
    "turned floats": {
        "elements past the end": ("&& within(element + (i32)j, lines.length)", ""),
        "patches of the first lines": ("first_line + (patch / CHUNKS * 8 + lane % 8)", "first_line + (lane % 8)"),
        "tiles of too few lines": ("lines > TILE_LINES ? lines : TILE_LINES", "lines"),
    },
    "floats": {
        "parts too near": ("divide_up(params.k, BLOCK_K) * BLOCK_K : UNIT", "BLOCK_K : UNIT"),
        "a part twice": ("PARTS_OF_A {2, 0, 1, 1, 0}", "PARTS_OF_A {2, 0, 1, 0, 0}"),
        "sums not lowered": (" * LOWER;", ";"),
        "formed again a row further": ("(thread_index() >> 2 & 7), sums);", "(thread_index() >> 2 & 7) + 1, sums);"),
        "low parts of rounded numbers": ("rest[i] = rest[i] - bit_cast<float>(pair << 16);", ";"),
    },
    "floats of images": {
        "parts too near": ("steps_per_tap(window) * BLOCK_K : UNIT", "BLOCK_K : UNIT"),
        "taps in the order of filters": ("line % (u32)filters * line_stride", "line / (u32)filters * line_stride"),
        "one tap without its stride": ("return same ? at :", "return true ? at :"),
        "rows of the padding read": ("return within((u32)source(0, at.middle), (u32)window.extent[0]) &&", "return"),
        "formed again from the first tap": ("at.row * window.k_stride[0] +", ""),
    },
    "floats of images, channels first": {
        "images one after the other": ("PIXELS_ARE_ROWS ? window.row_stride[0] : params.b_batch[1]", "params.b_k"),
        "taps as channels": ("PIXELS_ARE_ROWS ? k : taps * k, tap_stride", "k, tap_stride"),
        "formed again of other pixels": ("column / 2 * 8 + (thread_index() & 3) * 2 +", "column / 2 * 8 +"),
        "formed again of another image": (
            "(batch_offset(params.b_batch, tile.batch) - window.shift)",
            "(0 - window.shift)",
        ),
    },
    "scan": {
        "words that are still read": ("            half ^= 1;\n", ""),
        "steps one by one": ("        carry = join(carry, prefix[i].all);\n", ""),
        "its own warp before it": ("within(other, warp - first) ?", "within(other, warp - first + 1) ?"),
        "another row's warps": ("(i * PITCH + first + other)", "(i * PITCH + other)"),
        "lanes after it": ("if (thread_index() & mask)\n", "if (~thread_index() & mask)\n"),
    },
    "split scan": {
        "no carry at the border of a part": (
            "scan_rows(params, spot, states);",
            "scan_rows<FIRST_FOLD>(params, spot);",
        ),
        "its own part before it": ("SCANS ? spot.part :", "SCANS ? spot.part + 1 :"),
    },
    "split scan of columns": {
        "no carry at the border of a step": ("        carry[c] = join(carry[c], prefix[c].all);\n", ""),
        "words that are still read": ("reach *= 2, half ^= 1)", "reach *= 2)"),
        "a lane too far": ("const int back = last ? 1 : reach;", "const int back = reach;"),
        "steps that overlap": ("(i64)(STEP - ITEMS) * params.a_k", "(i64)0"),
    },
    "blocks, nvfp4": {
        "the scale of another column": ("RUN_B == 1 ? lane_of_four()", "RUN_B == 1 ? lane_of_four() ^ 1"),
        "the scale of the other half of a unit": ("* 2 + (in_four() >> 1)) *", "* 2 + (in_four() & 1)) *"),
        "a part of k with the first scales": ("tile.k_begin / PER_SCALE", "0 / PER_SCALE"),
        "scales past the last column": ("(pass * LINES, entries) && within(0, groups)", "(0, groups)"),
        "scales past the last group": ("inside && within(i, groups)", "inside"),
        "the exponent of the other type": ("0x74007400u : 0x7e807e80u", "0x7e807e80u : 0x74007400u"),
        "signs lost": ("fma_pair(sign | small,", "fma_pair(small,"),
        "the scale added": ("both[0], 0x80008000u, IN_TYPE{}", "0x3f803f80u, both[0], IN_TYPE{}"),
    },
    "blocks, two of nvfp4": {
        "both rows with one scale": ("step.of_a[2 * i + r % 2]", "step.of_a[2 * i]"),
        "rows not scaled": ("a[r] = scaled(a[r], step.of_a[2 * i + r % 2], part)", "a[r] = a[r]"),
        "rows in order of k": ("step.of_a[2 * i + r % 2]", "step.of_a[2 * i + r / 2]"),
        "the second fragment with the first one's scales": ("(i / RUN * APART", "(0 * APART"),
    },
    "blocks, mxfp4": {
        "the scales of the first stage": ("source = source + STAGE_SCALES * scale_group, groups", "groups"),
        "the scales of the first unit": ("step.of_b[2 * j + c] >> 8 * unit", "step.of_b[2 * j + c]"),
        "the scale of the other column": ("step.of_b[2 * j + c]", "step.of_b[2 * j + (c ^ 1)]"),
        "no group is left": ("groups -= STAGE_SCALES;", "groups -= 2 * STAGE_SCALES;"),
        "exponents one too large": (": bits << 23);", ": bits + 1 << 23);"),
        "numbers in order": ("const u32 pair = word >> 4 * i", "const u32 pair = word >> 4 * (i ^ 1)"),
    },
    "blocks, two of mxfp8": {
        "the scale of the other row": ("step.of_a[2 * i + half]", "step.of_a[2 * i + (half ^ 1)]"),
        "rows that are neighbours": ("OWN_A, 1, AS_STORED ? 32 : 8>", "OWN_A, 1, 1>"),
        "sums that are kept": ("Accumulators sums = {};", "static Accumulators sums = {};"),
        "the scales of the weights": ("params.groups.zeros, params.groups.zero_n", "params.d, params.groups.zero_n"),
        "one stage of scales": ("(SCALES_AT + write)", "SCALES_AT"),
    },
    "blocks, scaled nvfp4": {
        "another lane of four": ("{byte, i % 2, j % 4}", "{byte, i % 2, 2 - j % 4}"),
        "rows of a pair exchanged": ("(in_four() & 1) * 8", "(in_four() & 1 ^ 1) * 8"),
        "scales of the other operand": (
            "{SCALES_A ? step.of_a[i / 2] : ONES, SCALES_B ? step.of_b[j / 4] : ONES}",
            "{step.of_b[j / 4], step.of_a[i / 2]}",
        ),
        "two scales in place of four": ("mma_m16n8k64_scaled<STEP_SCALES>", "mma_m16n8k64_scaled<2>"),
        "exchanged numbers in a byte": (
            "load_b.load(to.numbers.b[0], shared_base()",
            "for (int i = 0; i < FRAGMENTS_M; ++i) for (u32 &word : to.numbers.a[i])"
            " word = word << 4 & 0xf0f0f0f0u | word >> 4 & 0x0f0f0f0fu;\n"
            "        load_b.load(to.numbers.b[0], shared_base()",
        ),
        "the word of the step before": ("k * STEP_SCALES % READ != 0", "k % 2 != 0"),
        "words in the order of entries": ("own_word() * ENTRIES + own_line()", "own_line() * WORDS + own_word()"),
        "words of the first step": ("scale / WORD_SCALES * ENTRIES * WORD_SCALES +", "0 +"),
        "columns of the next block": ("own_column((FRAGMENTS_N - 1) % 4 + 1)", "own_column(4)"),
        "scales after their group": (
            "scales.request(shared_base() + (SCALES_AT + write));\n        write = next_stage(write);\n"
            "        operands.request(params);",
            "operands.request(params);\n        scales.request(shared_base() + (SCALES_AT + write));\n"
            "        write = next_stage(write);",
        ),
        "no second scale": (
            "v[i] = multiply(v[i], scalar);\n        break;\n    case EPILOGUE_BIAS",
            ";\n        break;\n    case EPILOGUE_BIAS",
        ),
    },
    "blocks, scaled mxfp4": {
        "the first byte of a word": ("k * STEP_SCALES % WORD_SCALES);", "0);"),
        "the byte after it": ("{byte, i % 2, j % 4}", "{(byte + 2) % 4, i % 2, j % 4}"),
        "a byte between two pairs": ("{byte, i % 2, j % 4}", "{byte + 1, i % 2, j % 4}"),
        "four scales in place of two": ("mma_m16n8k64_scaled<STEP_SCALES>", "mma_m16n8k64_scaled<4>"),
        "a part of k with the first scales": ("tile.k_begin / PER_SCALE", "0 / PER_SCALE"),
    },
    "blocks, 8-bit floats, scales of one": {
        "scales of two": ("ONES = 0x7f7f7f7f", "ONES = 0x80808080"),
        "the other 8-bit float": ("same_type<B_STORED, e5m2_t>>(sums", "same_type<A_STORED, e5m2_t>>(sums"),
    },
    "blocks, scaled mxfp8": {
        "the other 8-bit float": ("32_scaled<same_type<A_STORED, e5m2_t>", "32_scaled<same_type<A_STORED, e4m3_t>"),
        "pairs of lanes exchanged": ("{byte, i % 2, j % 4}", "{byte, i % 2 ^ 1, j % 4}"),
        "the first byte of a word": ("k * STEP_SCALES % WORD_SCALES);", "0);"),
        "the first two fragments' scales": ("step.of_a[i / 2] :", "step.of_a[0] :"),
        "rows of the next warp": ("minimum(in_four() >> 1, fragments - 1) * 16", "(in_four() >> 1) * 8"),
    },
    "blocks, floats": {
        "scales of the first part of k": ("step = tile.k_begin / BLOCK_K;", "step = 0;"),
        "scales of the step before": (
            "of_a = of_a + a_stride, of_b = of_b + b_stride, --steps;\n    }",
            "--steps;\n    }",
        ),
        "A's scales of the step before": ("of_a = of_a + a_stride, of_b", "of_b"),
        "rows past the edge": ("left && within(pass * THREADS, rows)", "left"),
        "steps past the end of k": ("const bool left = within(0, steps);", "const bool left = true;"),
        "scales after their group": (
            "scales.request(shared_base() + (SCALES_AT + write));\n        write = next_stage(write);\n"
            "        operands.request(params);",
            "operands.request(params);\n        scales.request(shared_base() + (SCALES_AT + write));\n"
            "        write = next_stage(write);",
        ),
        "one stage of scales": ("(SCALES_AT + write)", "SCALES_AT"),
        "one scale for two rows": ("factors[r / 2]", "factors[0]"),
        "scales of neighbouring rows": ("factors[r / 2]", "factors[r % 2]"),
        "rows that are neighbours": ("scale(own + 8 * FloatScales::SCALE)", "scale(own + 1 * FloatScales::SCALE)"),
        "sums without scales": ("fma_(sums[j][r], factors[r / 2],", "fma_(sums[j][r], 1.0f,"),
        "sums without B's scale": ("const float of_b = scale(scales + panel);", "const float of_b = 1.0f;"),
        "sums that are kept": ("float sums[FRAGMENTS_N][4] = {};", "static float sums[FRAGMENTS_N][4] = {};"),
        "the last products of a row": (
            "k < K_STEPS; ++k) {\n                const int now",
            "k < 3; ++k) {\n                const int now",
        ),
        "a fragment that is overwritten": ("load_a.load_one(a[next % 2]", "load_a.load_one(a[now % 2]"),
        "no barrier after a step": (
            "pipeline.operands.receive();\n        read = Pipeline::next_stage(read), read_scales = Copies",
            "read = Pipeline::next_stage(read), read_scales = Copies",
        ),
    },
    "blocks, floats of one row of fragments": {
        "the panel of the first columns": ("((tile.column & (SCALED_COLUMNS - 1)) + column) / SCALED_COLUMNS", "0"),
        "the panel of the block's first column": ("(SCALED_COLUMNS - 1)) + column) /", "(SCALED_COLUMNS - 1))) /"),
        "the first panel of all": ("tile.column / SCALED_COLUMNS + own_panel();", "own_panel();"),
        "panels past the edge": ("left && has_panel", "left"),
        "one panel copied": ("within(own_panel(), PANELS)", "within(own_panel(), 1)"),
        "panels in place of rows": ("to + (BLOCK_M + own_panel()) * SCALE", "to + own_panel() * SCALE"),
        "strides exchanged": (
            "panel * params.groups.zero_n + step * b_stride",
            "panel * b_stride + step * params.groups.zero_n",
        ),
        "scales of two": ("ONES = 0x7f7f7f7f", "ONES = 0x80808080"),
    },
    "blocks, floats of many rows": {
        "rows that no thread copies": ("PASSES = divide_up(BLOCK_M, THREADS)", "PASSES = BLOCK_M / THREADS"),
        "rows past the tile": ("if (BLOCK_M % THREADS == 0 || within(row, BLOCK_M))", "if (true)"),
        "the first rows again": ("of_a + pass * THREADS * row_stride", "of_a"),
        "rows of the first fragments": ("(row + i * 16 * FloatScales::SCALE)", "row"),
        "rows of the first warp": ("row((row + ((thread_index()", "row((((thread_index()"),
        "rows of the first tile": ("row = tile.row + thread_index(), step", "row = thread_index(), step"),
    },
    "tensor memory, k-contiguous": {
        "a place that is never free": ("place.parity ^ 1);", "place.parity);"),
        "no fence after sums": ("place.parity);\n        tensor_fence_after();", "place.parity);"),
        "no fence after a full buffer": ("#endif\n            tensor_fence_after();", "#endif"),
        "no fence before a place is given back": ("tensor_fence_before();\n        warp_barrier();", "warp_barrier();"),
        "a place given back too early": (
            "if (half == 1)\n                loads.end",
            "if (half == 0)\n                loads.end",
        ),
        "a place that is kept": ("if (half == 1)\n                loads.end();", ""),
        "a buffer that is kept": ("umma_commit<BLOCKS>(empty(turn.slot), ALL_BLOCKS);", ""),
        "a buffer given back too early": (
            "multiply(k, !first || k > 0);\n        empty_buffer();",
            "empty_buffer(), multiply(k, !first || k > 0);",
        ),
        "sums that are not complete": ("umma_commit<BLOCKS>(sums_full(place.number));", ""),
        "sums of the tile before": ("multiply(k, !first || k > 0)", "multiply(k, true)"),
        "sums of the last step": ("multiply(k, !first || k > 0)", "multiply(k, k > 0)"),
        "lanes of half a warp": ("own * 32 + half * 16) << 16", "own * 32 + half * 8) << 16"),
        "lanes of another warp": ("(u32)(own * 32 + half * 16) << 16", "(u32)((own ^ 1) * 32 + half * 16) << 16"),
        "one place": ("(u32)(number * SUM_COLUMNS)", "0u"),
        "places that overlap": ("(u32)(number * SUM_COLUMNS)", "(u32)(number * SUM_COLUMNS / 2)"),
        "no wait for loads": ("tensor_load_wait(sums[0]);", ""),
        "memory that is kept": ("tensor_free<BLOCKS, MEMORY_COLUMNS>(memory);", ""),
        "memory given back too early": ("    meet();\n    if (warp == 1) {", "    if (warp == 1) {"),
        "more memory given back": ("tensor_free<BLOCKS, MEMORY_COLUMNS>", "tensor_free<BLOCKS, 2 * MEMORY_COLUMNS>"),
        "another address": ("return load_shared<4>(memory_address()).template get<u32>(0);", "return 0;"),
        "descriptors of warpgroups": ("(u64)1 << 46", "(u64)0"),
        "half the rows": ("(u32)(rows >> 4) << 24", "(u32)(rows >> 5) << 24"),
        "half the columns": ("(u32)(columns >> 3) << 17", "(u32)(columns >> 4) << 17"),
        "another type": ("constexpr u32 UMMA_CODE = 0;", "constexpr u32 UMMA_CODE = 1;"),
        "sums of another type": ("? 2 : 1; // i32", "? 2 : 0; // i32"),
        "B across": ("!TileB::K_CONTIGUOUS);\n", "TileB::K_CONTIGUOUS);\n"),
        "the first elements of k": ("part_a * TileA::BOX_BYTES + TileA::k_offset(k)", "part_a * TileA::BOX_BYTES"),
        "the first buffer": ("const int slot = turn.slot * SLOT_BYTES;", "const int slot = 0;"),
        "three arrivals": (
            "mbarrier_init(sums_empty(place), 4 * CONSUMERS * BLOCKS);",
            "mbarrier_init(sums_empty(place), 3 * CONSUMERS * BLOCKS);",
        ),
        "a tile too low": ("matrix_descriptor(tile + first * 128, 16", "matrix_descriptor(tile + 128, 16"),
        "loads of empty sums": (
            "if (within(0, steps)) {\n                tensor_load",
            "{\n                tensor_load",
        ),
    },
    "tensor memory, n-contiguous": {
        "B along k": ("!TileB::K_CONTIGUOUS);\n", "TileB::K_CONTIGUOUS);\n"),
        "fewer columns than two tiles need": ("columns_of(PLACES * SUM_COLUMNS", "columns_of(SUM_COLUMNS"),
        "another step along k": (": k * 128;", ": k * 64;"),
    },
    "tensor memory, pair": {
        "both blocks issue": ("warp == 1 && (!PAIR || rank_in_cluster() == 0)", "warp == 1"),
        "arrivals at the own block": (
            "mbarrier_arrive_at(sums_empty(place.number), first_of_pair());",
            "mbarrier_arrive(sums_empty(place.number));",
        ),
        "bytes of one block": ("SLOT_BYTES * (PAIR ? 2 : 1)", "SLOT_BYTES"),
        "both blocks expect": (
            "if (!PAIR || rank_in_cluster() == 0)\n                mbarrier_expect",
            "mbarrier_expect",
        ),
        "the same half of B": ("rank_in_cluster() * (BLOCK_N / 2)", "0"),
        "all of B in each block": ("PAIR ? BLOCK_N / 2 : BLOCK_N, B_LAYOUT", "BLOCK_N, B_LAYOUT"),
        "no meeting first": (
            "if constexpr (PAIR)\n        cluster_barrier();",
            "if constexpr (PAIR)\n        barrier();",
        ),
        "a meeting that shows no address": (
            "if constexpr (PAIR)\n        cluster_barrier",
            "if constexpr (PAIR)\n        cluster_begin",
        ),
        "rows of one block": ("(BLOCK_M * BLOCKS, BLOCK_N, !", "(BLOCK_M, BLOCK_N, !"),
        "copies that report to their own block": (
            "copy_tensor_of_pair(tile + box * BOX_BYTES, map, at, full);",
            "copy_tensor(tile + box * BOX_BYTES, map, at, full);",
        ),
        "products of one block": ("umma<BLOCKS, A_STORED>", "umma<1, A_STORED>"),
        "commits to one block": ("umma_commit<BLOCKS>(empty(", "umma_commit<1>(empty("),
    },
    "tensor memory, pairs along m": {
        "tiles for the blocks of a pair": ("return 5u << rank_in_cluster();", "return 3u << first_of_pair();"),
        "tiles for this block alone": (
            "return 5u << rank_in_cluster();",
            "return 1u << (first_of_pair() + rank_in_cluster());",
        ),
        "buffers released in one pair": ("(empty(turn.slot), ALL_BLOCKS)", "(empty(turn.slot), blocks_of_pair())"),
        "buffers released twice in one pair": (
            "umma_commit<BLOCKS>(empty(turn.slot), ALL_BLOCKS);",
            "umma_commit<BLOCKS>(empty(turn.slot)), umma_commit<BLOCKS>(empty(turn.slot), blocks_of_pair());",
        ),
        "sums complete in both pairs": (
            "(sums_full(place.number), blocks_of",
            "(sums_full(place.number), ALL_BLOCKS + 0 * blocks_of",
        ),
        "sums loaded in the first pair": (
            "(sums_empty(place.number), first_of_pair())",
            "(sums_empty(place.number), 0)",
        ),
        "bytes of one block": ("SLOT_BYTES * PEERS", "SLOT_BYTES"),
        "bytes counted in the first pair": ("map, at, full, first_of_pair());", "map, at, full, 0);"),
        "the first half twice": ("SHARED ? own_pair() * (", "SHARED ? 0 * ("),
        "halves by the place in a pair": ("SHARED ? own_pair() * (", "SHARED ? rank_in_cluster() * ("),
        "the other parity": (
            "turn.parity ^ 1);\n            if (rank_in_cluster",
            "turn.parity);\n            if (rank_in_cluster",
        ),
        "no meeting first": ("    meet();\n    return load_shared", "    barrier();\n    return load_shared"),
        "no wait for the last arrivals": ("turn.parity ^ 1);\n        turn.next();\n    }\n}", "0);\n    }\n}"),
        "rows of the first pair": ("(PAIRS_M - 1) * first_of_pair() + rank", "rank"),
        "another tile in each pair": ("block_index() / (2 * PEERS); within", "block_index() / PEERS; within"),
    },
    "tensor memory, pairs along n": {
        "tiles for all blocks": ("return 5u << rank_in_cluster();", "return 15u;"),
        "tiles for the other blocks": ("return 5u << rank_in_cluster();", "return 10u >> rank_in_cluster();"),
        "buffers released by one pair": ("PAIRS ? 2 : 1);", "1);"),
        "sums complete in the first pair": ("return 3u << first_of_pair();", "return 3u;"),
        "every block expects": (
            "if (rank_in_cluster() == 0)\n                mbarrier_expect",
            "mbarrier_expect",
        ),
        "bytes counted by second blocks": ("full, first_of_pair(), blocks_in", "full, first_of_pair() + 1, blocks_in"),
        "the first half's numbers twice": ("at.a_at[1] += PairedA::first_fetched_row(), ", ""),
        "the other operand shared": ("PairedTile<TileA, (PAIRS_N > 1)>", "PairedTile<TileA, (PAIRS_M > 1)>"),
        "no wait for an empty buffer": (
            "mbarrier_wait(empty(turn.slot), turn.parity ^ 1);\n            if (rank_in_cluster",
            "if (rank_in_cluster",
        ),
        "columns of the first pair": ("(PAIRS_N - 1) * own_pair() * COLUMNS", "0"),
        "tiles of another cluster": ("grid_size() / (2 * PEERS);", "grid_size() / PEERS;"),
    },
    "tensor memory, pairs along m, mxfp8": {
        "scales reported to the first pair": ("scales_full(buffer), first_of_pair()", "scales_full(buffer), 0"),
        "scales released in both pairs": (
            "scales_empty(turn.buffer), blocks_of",
            "scales_empty(turn.buffer), ALL_BLOCKS + 0 * blocks_of",
        ),
    },
    "tensor memory, gate of a pair": {
        "the gate twice": ("GATE ? MAP_B + rank_in_cluster() : MAP_B", "MAP_B"),
        "the other half of the columns": ("PAIR && !GATE ?", "PAIR ?"),
    },
    "tensor memory, scales of blocks, split": {
        "no wait for a place": ("if constexpr (BLOCK_SCALED)\n                begin_sums();", ""),
        "one place for all steps": ("if constexpr (BLOCK_SCALED)\n                end_sums();", ""),
        "sums of the step before": ("multiply_step(BLOCK_SCALED || step == 0)", "multiply_step(step == 0)"),
        "no wait for loads": ("tensor_load_wait(piece[p % 2]);", ""),
        "the same piece": ("next % ROW_PIECES * PIECE));", "0));"),
        "the first half of the rows twice": ("warp_uniform(thread_index() >> 7) - 1 : 0", "0 : 0"),
        "arrivals of four warps": ("4 * CONSUMERS * BLOCKS);", "4 * BLOCKS);"),
        "scales of the first step": ("tile.k_begin / BLOCK_K, panel", "0, panel"),
        "scales of the step before": ("of_a = of_a + a_stride, of_b = of_b + b_stride, --steps;", "--steps;"),
        "scales after the last step": ("--steps;\n        load", "load"),
        "one scale for two rows": ("column, v >> 1 & 1);", "column, 0);"),
        "scales of other rows": ("(thread_index() >> 2 & 7);\n        const int step", "0;\n        const int step"),
        "rows past the edge": ("left && within(8 * half, rows)", "left"),
        "panels past the edge": ("left && within(which, panels)", "left"),
        "sums without scales": ("fma_floats(sums, products, factor);", "fma_floats(sums, products, 1.0f);"),
    },
    "tensor memory, scales of blocks, pair": {
        "arrivals of one block": ("4 * CONSUMERS * BLOCKS);", "4 * CONSUMERS);"),
        "rows of the first block": ("const int first = tile.row + row + (t", "const int first = row + (t"),
        "the first panel": ("(panel * panel_stride + step", "(step"),
        "one panel for all columns": ("column < border ?", "true ?"),
        "a border of the next panel": ("? SCALED_COLUMNS - tile.column % SCALED_COLUMNS :", "? 64 :"),
        "boxes of four warps": ("(warp - 4) * 2 * BOX_BYTES", "(warp & 3) * 2 * BOX_BYTES"),
    },
    "scales, mxfp8": {
        "a buffer that is never free": ("scales_empty(own), turn.parity ^ 1", "scales_empty(own), turn.parity"),
        "no wait for scales": ("            scales.begin_step();\n", ""),
        "the parity before": (
            "mbarrier_wait(scales_full(turn.buffer), turn.parity)",
            "mbarrier_wait(scales_full(turn.buffer), turn.parity ^ 1)",
        ),
        "a parity that stays": ("parity ^= (u32)(buffer == 0)", "parity ^= 0"),
        "two arrivals": (
            "mbarrier_init(scales_full(buffer), BLOCKS)",
            "mbarrier_init(scales_full(buffer), BLOCKS + 1)",
        ),
        "an arrival too many": ("if ((thread_index() & 31) == 0)\n                    arrive", "arrive"),
        "scales before they are stored": (
            "b.store(sectors(own) + GROUP_BYTES);\n                proxy_fence();",
            "proxy_fence();\n                b.store(sectors(own) + GROUP_BYTES);",
        ),
        "sectors of both warps": ("if (turn.buffer == own) {", "{"),
        "scales of the first rows": ("const int entry = first + own_line()", "const int entry = own_line()"),
        "rows past the end": ("left && within(at, entries)", "left"),
        "words past the end": ("at < ENTRIES && left &&", "at < ENTRIES &&"),
        "the first quarter alone": ("held[g][i].word[quarter] =", "held[g][i].word[0] ="),
        "quarters in another order": ("held[g][i].word[quarter] =", "held[g][i].word[quarter ^ 1] ="),
        "rows in another order": ("(own_line() + i * LINES) * 16", "((own_line() ^ 2) + i * LINES) * 16"),
        "B's scales of A": ("params.groups.zeros, params.groups.zero_n, tile.row", "params.d, params.d_n, tile.row"),
        "the first buffer": ("turn.buffer * SECTORS_BYTES + step", "step"),
        "the first step": ("turn.buffer * SECTORS_BYTES + step * WORDS * WORD_BYTES", "turn.buffer * SECTORS_BYTES"),
        "a step of the tile before": ("== SECTOR_STEPS || last_of_tile", "== SECTOR_STEPS"),
        "a buffer given back too early": ("++step == SECTOR_STEPS ||", "++step == 1 ||"),
        "scales that are kept": ("umma_commit<BLOCKS>(scales_empty(turn.buffer));", ""),
        "scales not copied": ("scales.template copy<BLOCKS>();", ""),
        "scales copied after the products": (
            "scales.template copy<BLOCKS>();\n#endif\n"
            "        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) multiply(k, !first || k > 0);",
            "#endif\n        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) multiply(k, !first || k > 0);\n"
            "#if ROW_SCALES\n        scales.template copy<BLOCKS>();\n#endif",
        ),
        "A's scales in place of B's": ("of_a(word), of_b(word), kept", "of_a(word), of_a(word), kept"),
        "the first byte": ("k / 32 * ROW_SCALES % 4", "0"),
        "the byte of the other operand": ("(u32)a_byte << 29", "(u32)(a_byte ^ 1) << 29"),
        "scales over the sums": ("{memory + PLACES * SUM_COLUMNS}", "{memory + (PLACES - 1) * SUM_COLUMNS}"),
        "scales past the memory": ("{memory + PLACES * SUM_COLUMNS}", "{memory + MEMORY_COLUMNS - 4}"),
        "scales of another type": ("(u32)(SCALES < 4) << 23", "(u32)(SCALES == 4) << 23"),
        "scales as rows of 128 bytes": ("(u64)(128 >> 4) << 32", "(u64)(1024 >> 4) << 32"),
        "a buffer that is kept": ("umma_commit<BLOCKS>(empty(turn.slot), ALL_BLOCKS);", ""),
        "buffers that overlap": ("(SECTORS_AT + buffer * SECTORS_BYTES)", "(SECTORS_AT + buffer * 1024)"),
        "scales over the slabs": (
            "SECTORS_AT = SLABS + (EPILOGUE_STAGED ? 256 * WARP_N",
            "SECTORS_AT = SLABS + (EPILOGUE_STAGED ? 0",
        ),
        "words too near": ("WORD_BYTES = 512 + 16", "WORD_BYTES = 256"),
    },
    "scales, mxfp8 of a pair": {
        "e4m3 in place of e5m2": ("same_type<A_STORED, e5m2_t>,", "false,"),
        "the first word": ("const int word = k / 32 * ROW_SCALES / 4,", "const int word = 0,"),
        "places of one word": ("{ return first + (u32)(word * 4); }", "{ return first; }"),
        "columns of the first group": ("of_b(word) + (u32)(g * 4),", "of_b(word),"),
        "scales of the first group": ("(1 + g) * GROUP_BYTES", "GROUP_BYTES"),
    },
    "scales, mxfp4, split": {
        "the first part's scales": ("tile.k_begin / 128 * ROW_SCALES + own_word()", "own_word()"),
        "a word for two": ("divide_up(params.k * ROW_SCALES, 128)", "divide_up(params.k, 128)"),
        "one scale": ("ROW_SCALES % 4;", "ROW_SCALES % 2;"),
    },
    "scales, nvfp4": {
        "scales of another type": ("scaled_descriptor<ROW_SCALES>(", "scaled_descriptor<2>("),
        "numbers of another type": ("(u32)(SCALES > 1 || a_e5m2) << 7", "(u32)a_e5m2 << 7"),
        "words in one place": ("own_word() * WORD_BYTES +", "0 * WORD_BYTES +"),
        "words of one lane": ("return thread_index() % SECTOR_WORDS;", "return 0;"),
        "the sector before": ("a.next(), b.next(), turn.next();", "a.next(), turn.next();"),
        "the other order of words": ("further(from, word * WORD_BYTES)", "further(from, (word ^ 1) * WORD_BYTES)"),
    },
    "scales, nvfp4 of a pair": {
        "an arrival that releases no stores": (
            "mbarrier_arrive_in_pair(scales_full(buffer), first_of_pair())",
            "mbarrier_arrive_at(scales_full(buffer), 0)",
        ),
        "an arrival at the own block": (
            "mbarrier_arrive_in_pair(scales_full(buffer), first_of_pair())",
            "mbarrier_arrive(scales_full(buffer))",
        ),
        "arrivals of one block": (
            "mbarrier_init(scales_full(buffer), BLOCKS)",
            "mbarrier_init(scales_full(buffer), 1)",
        ),
        "buffers given back to one block": (
            "umma_commit<BLOCKS>(scales_empty(turn.buffer));",
            "umma_commit<1>(scales_empty(turn.buffer));",
        ),
        "copies to one block": ("tensor_copy_scales<BLOCKS>(of_a(word)", "tensor_copy_scales<1>(of_a(word)"),
        "products of one block": ("umma_scaled<BLOCKS, ROW_SCALES>", "umma_scaled<1, ROW_SCALES>"),
        "rows of one block": ("(BLOCK_M * BLOCKS, BLOCK_N, byte", "(BLOCK_M, BLOCK_N, byte"),
        "half the columns": ("GROUPS_B = divide_up(BLOCK_N, 128)", "GROUPS_B = divide_up(BLOCK_N / 2, 128)"),
        "columns of half a tile": (
            "params.d, params.d_n, tile.column, params.n",
            "params.d, params.d_n, tile.column + 32, params.n",
        ),
    },
    "tensor memory, parts": {
        "a buffer given back after its last sums": (
            "if (k == BLOCK_K - K_STEP)\n                empty",
            "if (k < 0)\n                empty",
        ),
        "no fence after a place": ("if constexpr (PARTS > 1) // else", "if constexpr (false) // else"),
        "short sums that are kept": ("multiply(k, false);", "multiply(k, true);"),
        "small products of one part": ("OF_A[p], OF_B[p]", "OF_A[p], 0"),
        "parts that follow one another": ("at, full,\n                           box_step);", "at, full);"),
        "sums of half the rows": ("&sums[half][0][column", "&sums[0][0][column"),
    },
    "rows of groups": {
        "one thread alone looks for a group": ("!RAGGED_ROWS && !elected", "!elected"),
        "tiles of every group once more": ("RAGGED_ROWS ? (u32)params.tiles_m", "false ? (u32)params.tiles_m"),
        "every lane requests": ("if (!elected)\n            return;\n        const Steps", "const Steps"),
    },
}
CASES = [(kernel, what) for kernel, faults in FAULTS.items() for what in faults]


@pytest.mark.parametrize(("kernel", "what"), sample(CASES, 12))
def test_a_planted_fault_is_found(kernel, what):
    each, workload = PROGRAMS[kernel]()
    verdict = verdict_without(*FAULTS[kernel][what], each, workload)
    assert verdict.outcome in ("failed", "wrong"), verdict


def test_sums_of_eight_bit_floats_that_are_kept_too_long_are_found():
    def edit(text):
        before = "multiply<0>(products, a, b, i, 0);"
        assert text.count(before) == 1
        kept = text.replace(before, "multiply<1>(products, a, b, i, 0);")
        return kept.replace("sums[i][v] + products[v]", "products[v]")

    each = small(WGMMA, EIGHT_BIT, vector_c=16, block_k=128)
    kept = Changed(each.program, each.constants, edit)
    long = WGMMA.summed(EIGHT_BIT.with_sizes(m=70, n=72, k=1280))
    problem = Problem(Case("long sums", long), 7)
    problem.run(each, build(each.source()), copies="late", order="forward")
    assert problem.check() <= 1
    problem.run(kept, build(kept.source()), copies="late", order="forward")
    with pytest.raises(Failure):
        problem.check()


def test_operands_of_merged_groups_that_are_not_kept_apart_are_found(monkeypatch):
    monkeypatch.setattr(params, "_apart", lambda strides, count: strides.batch)
    [each] = [each for each in patch_configurations() if each.name == "patch merged"]
    assert each.verify(str).outcome in ("failed", "wrong")
