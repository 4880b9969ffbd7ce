-- Version 5. Every row is found by, and checked against, the SHA-256 in its first column; see record.py.
-- Rows never change: a new finding is a new row. Only `portfolio` is replaced, class by class.
-- JSON columns hold canonical JSON: sorted keys, no spaces. Digests are 64 hexadecimal digits.

CREATE TABLE source (
    digest TEXT NOT NULL PRIMARY KEY, -- SHA-256 of the text
    text BLOB NOT NULL                -- flattened CUDA source without constants or comments, UTF-8, xz, or in a pack
);

CREATE TABLE binary (
    digest TEXT NOT NULL PRIMARY KEY, -- over the columns below
    source_digest TEXT NOT NULL,      -- source.digest
    constants TEXT NOT NULL,          -- JSON: macro name -> integer or type token; or in a pack
    target TEXT NOT NULL,             -- what the compiler was asked for, such as sm_87 or sm_90a
    cubin BLOB NOT NULL,              -- the ELF image, xz, or in a pack
    registers INTEGER NOT NULL,       -- per thread, largest of any entry
    spill_bytes INTEGER NOT NULL,     -- spill stores + spill loads, sum of all entries
    stack_bytes INTEGER NOT NULL,     -- per thread, largest of any entry
    shared_bytes INTEGER NOT NULL,    -- static shared memory per block, largest of any entry
    facts TEXT NOT NULL,              -- JSON: the same by entry, instructions, access widths, where read; or in a pack
    toolchain TEXT NOT NULL           -- compiler and version
);

CREATE TABLE kernel (
    digest TEXT NOT NULL PRIMARY KEY, -- over the columns below: the kernel's name everywhere
    family TEXT NOT NULL,             -- kernel family, such as contraction_mma
    abi INTEGER NOT NULL,             -- the family's ABI version; kernels of another are never used
    class_key TEXT NOT NULL,          -- JSON: the Workload without sizes and epilogue
    program TEXT NOT NULL,            -- JSON: the Program, every scheduling choice as an integer
    arch TEXT NOT NULL,               -- compute capability, such as sm_87
    binary_digest TEXT NOT NULL       -- binary.digest
);
CREATE INDEX kernel_class ON kernel (class_key, arch);

CREATE TABLE verification (
    digest TEXT NOT NULL PRIMARY KEY, -- over the columns below
    kernel_digest TEXT NOT NULL,      -- kernel.digest
    method TEXT NOT NULL,             -- emulator or device
    outcome TEXT NOT NULL,            -- ok, not_compiled, wrong, failed or timeout
    error TEXT,                       -- what went wrong, NULL where nothing did
    worst REAL,                       -- largest error divided by its tolerance over all cases
    cases TEXT NOT NULL,              -- JSON: sizes, epilogues and modes that were executed; or in a pack
    counters TEXT NOT NULL,           -- JSON: branches taken, bank conflicts, access widths; or in a pack
    provenance TEXT NOT NULL          -- JSON: emulator, compiler and library versions, device
);
CREATE INDEX verification_kernel ON verification (kernel_digest);

CREATE TABLE record (
    digest TEXT NOT NULL PRIMARY KEY, -- over the columns below
    key TEXT NOT NULL,                -- JSON: the Workload, sizes and epilogue included
    arch TEXT NOT NULL,               -- compute capability, such as sm_87
    part TEXT NOT NULL,               -- the part it was tuned for, such as orin-nano-8gb
    abi INTEGER NOT NULL,             -- ABI version of the kernel's family; 0 where there is no kernel
    kernel_digest TEXT,               -- kernel.digest, NULL where none came out
    predicted_us REAL,                -- the potential of its Program, microseconds
    bound_us REAL,                    -- roofline bound of the Workload, microseconds
    outcome TEXT NOT NULL,            -- ok, not_compiled, wrong, failed or timeout
    error TEXT,                       -- reason where outcome is not ok
    walk TEXT NOT NULL,               -- JSON: start, and the loop-erased legs of the walks that led to the Program
    provenance TEXT NOT NULL,         -- JSON: versions, options and notes of the run
    created INTEGER NOT NULL          -- seconds since 1970; among records of one key the newest counts
);
CREATE INDEX record_key ON record (key, arch, part);

CREATE TABLE portfolio (
    digest TEXT NOT NULL PRIMARY KEY, -- over the columns below
    arch TEXT NOT NULL,               -- compute capability
    part TEXT NOT NULL,               -- the part the cover was computed for
    class_key TEXT NOT NULL,          -- JSON: the Workload without sizes and epilogue
    rank INTEGER NOT NULL,            -- order in which the cover took them, from 0
    kernel_digest TEXT NOT NULL       -- kernel.digest
);
CREATE INDEX portfolio_class ON portfolio (class_key, arch, part);

CREATE TABLE timing (
    digest TEXT NOT NULL PRIMARY KEY, -- over the columns below
    key TEXT NOT NULL,                -- JSON: the Workload that was timed
    arch TEXT NOT NULL,               -- compute capability
    part TEXT NOT NULL,               -- the part it was timed on
    kernel_digest TEXT,               -- kernel.digest, NULL for a vendor call
    vendor TEXT,                      -- name of the vendor call, NULL for one of our kernels
    median_us REAL NOT NULL,          -- median of the samples, microseconds
    samples TEXT NOT NULL,            -- JSON: how many, percentiles, how they were taken
    device TEXT NOT NULL,             -- JSON: device name, driver, clocks, power mode
    created INTEGER NOT NULL          -- seconds since 1970
);
CREATE INDEX timing_key ON timing (key, arch, part);

-- Sources, cubins and texts of shipped files, several to a pack, because similar data is smaller together. The place of
-- one of them is the text "digest:start:stop", in bytes.
CREATE TABLE pack (
    digest TEXT NOT NULL PRIMARY KEY, -- SHA-256 of the data
    data BLOB NOT NULL                -- xz
);
