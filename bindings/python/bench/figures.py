"""Figures of the Python package for docs/results: medians of runs in turn.

    python bindings/python/bench/figures.py [--rounds 9] [--files 10000]

Needs the package as a release build, fsspec and pyfakefs. Each measured call is repeated so long that
a round takes some 50 milliseconds; a round times ours and the other one, one after the other. Times of
calls are processor time, rates of threads are by the clock.
"""

import argparse
import os
import statistics
import sys
import threading
import time
import zlib

import fsspec
import vfscale
from fsspec.implementations.memory import MemoryFileSystem
from pyfakefs import fake_filesystem

ROUND_SECONDS = 0.05


def seconds_of(call, times):
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def in_turn(rounds, *calls):
    """Returns the median time of each call, in seconds."""
    counts = []
    for call in calls:
        call()
        once = seconds_of(call, 1)
        counts.append(max(1, min(100_000, int(ROUND_SECONDS / max(once, 1e-7)))))
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, count, found in zip(calls, counts, times):
            found.append(seconds_of(call, count))
    return [statistics.median(found) for found in times]


def row(name, ours, other):
    print(f"| {name} | {ours * 1e6:,.2f} µs | {other * 1e6:,.2f} µs | {other / ours:,.1f} |")


def listings(rounds, files):
    """Calls of fsspec on files in directories of 100, beside fsspec's memory."""
    ours = fsspec.filesystem("vfscale", tree="figures")
    other = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    for fs in (ours, other):
        for n in range(files):
            fs.pipe_file(f"/data/d{n // 100:03}/f{n:06}", b"x" * 100)
    middle = files // 200
    directory, file = f"/data/d{middle:03}", f"/data/d{middle:03}/f{middle * 100 + 50:06}"
    assert sorted(ours.ls(directory, detail=False)) == sorted(other.ls(directory, detail=False))
    assert ours.find("/data") == other.find("/data")
    assert ours.info(file)["size"] == other.info(file)["size"] == 100
    def after_a_write(call):
        def both(fs):
            fs.pipe_file(file, b"y" * 100)
            return call(fs)

        return both

    cases = {
        "`ls` of a directory of 100": lambda fs: fs.ls(directory),
        "`ls` of it, names only": lambda fs: fs.ls(directory, detail=False),
        "`info` of a file": lambda fs: fs.info(file),
        "`info` of a directory": lambda fs: fs.info(directory),
        "`find` below a directory of 100": lambda fs: fs.find(directory),
        "`find` of all, names only": lambda fs: fs.find("/data"),
        "`find` of all": lambda fs: fs.find("/data", detail=True),
        "a write, and `ls` of its directory": after_a_write(lambda fs: fs.ls(directory)),
        "a write, and `find` of all, names only": after_a_write(lambda fs: fs.find("/data")),
        "a write, and `find` of all": after_a_write(lambda fs: fs.find("/data", detail=True)),
    }
    print(f"| {files:,} files | vfscale | fsspec's memory | times |\n| --- | ---: | ---: | ---: |")
    for name, case in cases.items():
        row(name, *in_turn(rounds, lambda: case(ours), lambda: case(other)))


def small_files(rounds):
    """Open, read and close of a file of 100 bytes, beside pyfakefs."""
    task = vfscale.memory(size=64 << 20).task()
    task.write_bytes("/file", b"x" * 100)
    fake = fake_filesystem.FakeFilesystem()
    fake.create_file("/file", contents=b"x" * 100)
    fake_open = fake_filesystem.FakeFileOpen(fake)
    fake_os = fake_filesystem.FakeOsModule(fake)

    def with_open(opener, *options):
        def call():
            with opener("/file", "rb", *options) as file:
                return file.read()

        return call

    def with_descriptor(module):
        def call():
            fd = module.open("/file", os.O_RDONLY)
            data = module.read(fd, 200)
            module.close(fd)
            return data

        return call

    cases = {
        '`with open(path, "rb")`': (with_open(task.open), with_open(fake_open)),
        "the same, `buffering=0`": (with_open(task.open, 0), with_open(fake_open, 0)),
        "`os.open`, `os.read`, `os.close`": (with_descriptor(task), with_descriptor(fake_os)),
        "`task.read_bytes(path)`": (lambda: task.read_bytes("/file"), with_open(fake_open)),
    }
    print("| open, read, close | vfscale | pyfakefs | times |\n| --- | ---: | ---: | ---: |")
    for name, (ours, other) in cases.items():
        assert ours() == other() == b"x" * 100
        row(name, *in_turn(rounds, ours, other))


def reads_by_threads(rounds, size=1 << 20, total=1000):
    """Reads of 1 MiB by one thread and by two: how many times as much two do.

    A sum of 1 MiB, which shares nothing with the other thread, shows how much two can do here.
    """
    task = vfscale.memory(size=256 << 20).task()
    for n in range(2):
        task.write_bytes(f"/t{n}", os.urandom(8 * size))
    data = [os.urandom(size) for _ in range(2)]

    def pread(number):
        with task.open(f"/t{number}", "rb", 0) as file:
            for step in range(total):
                file.pread(size, step % 8 * size)

    def readinto(number):
        into = bytearray(size)
        with task.open(f"/t{number}", "rb", 0) as file:
            for step in range(total):
                file.seek(step % 8 * size)
                file.readinto(into)

    def checksum(number):
        for _ in range(total // 10):
            zlib.crc32(data[number])

    def rate(work, threads):
        gate = threading.Barrier(threads + 1)

        def run(number):
            gate.wait()
            work(number)

        workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        gate.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        calls = total // 10 if work is checksum else total
        return threads * calls * size / (time.perf_counter() - start)

    names = {pread: "`file.pread`", readinto: "`file.readinto`", checksum: "`zlib.crc32`"}
    found = {work: [] for work in names}
    for _ in range(4 * rounds):
        for work, rates in found.items():
            rates.append((rate(work, 1), rate(work, 2)))
    print("| 1 MiB at a time | one thread | two threads | times |\n| --- | ---: | ---: | ---: |")
    for work, name in names.items():
        one, two = (statistics.median(rates) / 1e9 for rates in zip(*found[work]))
        times = statistics.median(two / one for one, two in found[work])
        print(f"| {name} | {one:.2f} GB/s | {two:.2f} GB/s | {times:.2f} |")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--files", type=int, default=10_000)
    options = options.parse_args()
    print(f"Python {sys.version.split()[0]}, fsspec {fsspec.__version__}\n")
    listings(options.rounds, options.files)
    print()
    small_files(options.rounds)
    print()
    reads_by_threads(options.rounds)


if __name__ == "__main__":
    main()
