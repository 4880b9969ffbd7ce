"""Files, folders and devices in place of a database."""

import gzip
import os
import socket
import sqlite3
import struct


def junk(generator, most):
    return generator.randbytes(generator.choice([0, 1, 15, 16, 17, 99, 100, 101, 511, 512, generator.randrange(most)]))


def damaged_header(path, image, generator):
    """Page size, reserved bytes, page count, free list, schema cookie and format, encoding, versions."""
    data = bytearray(image)
    fields = [(16, 2), (18, 1), (20, 1), (28, 4), (32, 4), (36, 4), (44, 4), (56, 4), (92, 4)]
    for field, width in generator.choices(fields, k=generator.randrange(1, 6)):
        data[field : field + width] = generator.choice([b"\0", b"\1", b"\xff", generator.randbytes(1)]) * width
    path.write_bytes(data)


def shuffled_pages(path, image, generator):
    pages = [image[start : start + 4096] for start in range(0, len(image), 4096)]
    for _ in range(generator.randrange(1, 8)):
        pages[generator.randrange(1, len(pages))] = generator.choice(pages[1:])
    path.write_bytes(b"".join(pages))


def other_application(path, image, generator):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode={generator.choice(['wal', 'delete', 'truncate'])}")
    connection.execute(f"PRAGMA application_id={generator.choice([0, 0x0F055112, 0x47454E53, 1])}")
    connection.execute(f"PRAGMA user_version={generator.choice([0, 1, 2, 77, -1])}")
    connection.execute(f"PRAGMA encoding='{generator.choice(['UTF-8', 'UTF-16le', 'UTF-16be'])}'")
    name = generator.choice(["notes", "kernel", "record"])
    connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, digest, text)")
    connection.executemany(f"INSERT INTO {name}(text) VALUES (?)", [("x" * 100,)] * 50)
    connection.commit()
    connection.close()


def junk_beside(path, image, generator):
    path.write_bytes(image)
    for suffix in generator.sample(("-wal", "-journal", "-shm"), generator.randrange(1, 4)):
        beside = path.with_name(path.name + suffix)
        kind = generator.randrange(7)
        if kind == 0:
            os.mkfifo(beside)
        elif kind == 1:
            beside.mkdir()
        elif kind == 2:
            beside.symlink_to("/dev/zero")
        else:
            magic = {"-wal": b"\x37\x7f\x06\x82\x00\x2d\xe2\x18", "-journal": b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"}
            beside.write_bytes(magic.get(suffix, b"") * (kind > 3) + junk(generator, 40_000))


def log_of_another(path, image, generator):
    other = path.with_name("other.db")
    connection = sqlite3.connect(other, isolation_level=None)
    connection.execute("PRAGMA journal_mode=wal")
    connection.execute("CREATE TABLE kernel (digest TEXT, x)")
    connection.execute("INSERT INTO kernel VALUES ('x', randomblob(9000))")
    log = bytearray(other.with_name("other.db-wal").read_bytes())
    connection.close()
    if generator.random() < 0.5:
        log[generator.randrange(len(log))] ^= 1 << generator.randrange(8)
    path.write_bytes(image)
    path.with_name(path.name + "-wal").write_bytes(log)


def socket_at(path, image, generator):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def huge_page_count(path, image, generator):
    """2^32 - 2 pages, in a file with holes that has a size to match some of them."""
    path.write_bytes(image[:28] + struct.pack(">I", 0xFFFFFFFE) + image[32:])
    if generator.random() < 0.5:
        os.truncate(path, 2 ** generator.randrange(24, 36))


def damaged_page(path, image, generator):
    start = generator.randrange(len(image))
    path.write_bytes(image[:start] + generator.randbytes(64) + image[start + 64 :])


def sound_by_a_link(path, image, generator):
    (path.parent / "target.db").write_bytes(image)
    path.symlink_to(path.parent / "target.db")


#: Files of others, which are not changed.
FOREIGN = {
    "other application": other_application,
    "another format": lambda path, image, generator: path.write_bytes(
        generator.choice([b"\x7fELF" + bytes(500), gzip.compress(image), b"op,m,n,k\nmatmul,1,2,3\n" * 50])
    ),
    "text": lambda path, image, generator: path.write_text(
        "".join(chr(generator.randrange(32, 0x3000)) for _ in range(generator.randrange(2000)))
    ),
}
#: Functions that put something of a kind at a path; `image` is a sound database.
KINDS = FOREIGN | {
    "random bytes": lambda path, image, generator: path.write_bytes(junk(generator, 100_000)),
    "cut short": lambda path, image, generator: path.write_bytes(image[: generator.randrange(len(image))]),
    "longer": lambda path, image, generator: path.write_bytes(image + junk(generator, 20_000)),
    "header and junk": lambda path, image, generator: path.write_bytes(
        image[: generator.choice([16, 18, 24, 28, 56, 72, 100, 108, 512, 4096])] + junk(generator, 50_000)
    ),
    "damaged header": damaged_header,
    "huge page count": huge_page_count,
    "shuffled pages": shuffled_pages,
    "damaged page": damaged_page,
    "empty": lambda path, image, generator: path.touch(),
    "folder": lambda path, image, generator: path.mkdir(),
    "pipe": lambda path, image, generator: os.mkfifo(path),
    "socket": socket_at,
    "device": lambda path, image, generator: path.symlink_to(
        generator.choice(["/dev/zero", "/dev/null", "/dev/urandom", "/dev/full"])
    ),
    "link to nothing": lambda path, image, generator: path.symlink_to(
        generator.choice([path, path.parent / "nothing", path.parent])
    ),
    "sound, by a link": sound_by_a_link,
    "junk in its logs": junk_beside,
    "log of another": log_of_another,
}
