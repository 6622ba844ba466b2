"""The file systems of fsspec, and libraries that read and write through them.

Each test is skipped where its library is not installed; `scripts/test-python` installs all.
"""

import asyncio
import doctest
import errno
import importlib.util
import os
import pickle
import tempfile
import threading
import unittest
import uuid

import vfscale

HAS = {
    name: importlib.util.find_spec(name) is not None
    for name in ("fsspec", "pandas", "pyarrow", "zarr")
}

if HAS["fsspec"]:
    import fsspec
    import vfscale.fsspec
    from vfscale.fsspec import VfscaleFileSystem, VfscaleVolumeFileSystem


def needs(*names):
    missing = [name for name in names if not HAS[name]]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


class FileSystems:
    """Tests of `self.fs`."""

    def test_registered(self):
        self.assertIs(type(self.fs), fsspec.get_filesystem_class(self.fs.protocol))

    def test_paths(self):
        strip = self.fs._strip_protocol
        for path in ("/a/b", "a/b", "/a/b/", f"{self.fs.protocol}://a/b", "//a/b"):
            self.assertEqual(strip(path), "/a/b", path)
        self.assertEqual(strip(f"{self.fs.protocol}://"), "/")
        self.assertEqual((self.fs._parent("/a/b"), self.fs._parent("/a")), ("/a", "/"))

    def test_listings(self):
        fs = self.fs
        fs.pipe({"/d/one": b"1", "/d/sub/two": b"22", "/three": b"333"})
        fs.symlink("sub", "/d/link")
        fs.symlink("nowhere", "/d/broken")
        self.assertEqual(sorted(fs.ls("/", detail=False)), ["/d", "/three"])
        kinds = {info["name"]: (info["type"], info["size"]) for info in fs.ls("/d")}
        self.assertEqual(
            kinds,
            {
                "/d/one": ("file", 1),
                "/d/sub": ("directory", 0),
                "/d/link": ("directory", 0),
                "/d/broken": ("other", 0),
            },
        )
        self.assertEqual(fs.ls("/three", detail=False), ["/three"])
        self.assertEqual(fs.info("/d/link")["destination"], "sub")
        self.assertEqual(fs.info("/d/one")["mode"], 0o100644)
        self.assertEqual(fs.find("/"), ["/d/broken", "/d/one", "/d/sub/two", "/three"])
        self.assertEqual(fs.find("/d", maxdepth=1), ["/d/broken", "/d/one"])
        found = fs.find("/d", withdirs=True, detail=True)
        self.assertEqual(
            sorted(found), ["/d", "/d/broken", "/d/link", "/d/one", "/d/sub", "/d/sub/two"]
        )
        self.assertEqual(found["/d/sub/two"]["size"], 2)
        self.assertEqual((fs.find("/none"), fs.find("/three")), ([], ["/three"]))
        self.assertRaises(FileNotFoundError, fs.ls, "/none")
        self.assertRaises(FileNotFoundError, fs.info, "/none")
        self.assertRaises(ValueError, fs.find, "/", maxdepth=0)
        self.assertEqual(fs.du("/d/sub"), 2)
        self.assertEqual(fs.modified("/d/one").year, fs.created("/d/one").year)

    def test_glob_and_walk(self):
        fs = self.fs
        fs.pipe({f"/g/{a}/{b}.txt": b"" for a in "xy" for b in "12"})
        fs.pipe("/g/x/note.md", b"")
        self.assertEqual(fs.glob("/g/*/1.txt"), ["/g/x/1.txt", "/g/y/1.txt"])
        self.assertEqual(fs.glob("/g/x/*.md"), ["/g/x/note.md"])
        self.assertEqual(len(fs.glob("/g/**/*.txt")), 4)
        self.assertEqual(fs.glob("/g/[x]/?.txt"), ["/g/x/1.txt", "/g/x/2.txt"])
        walked = {top: (sorted(dirs), sorted(files)) for top, dirs, files in fs.walk("/g")}
        self.assertEqual(walked["/g"], (["x", "y"], []))
        self.assertEqual(walked["/g/y"], ([], ["1.txt", "2.txt"]))

    def test_contents(self):
        fs = self.fs
        fs.pipe_file("/c/f", b"0123456789")
        self.assertEqual(fs.cat_file("/c/f", 2, 5), b"234")
        self.assertEqual(fs.cat_file("/c/f", -3), b"789")
        self.assertEqual(fs.cat_file("/c/f", 8, 100), b"89")
        self.assertEqual(fs.cat_ranges(["/c/f"] * 2, [0, 5], [1, 7]), [b"0", b"56"])
        self.assertRaises(FileExistsError, fs.pipe_file, "/c/f", b"", mode="create")
        self.assertEqual((fs.head("/c/f", 3), fs.tail("/c/f", 3)), (b"012", b"789"))
        with fs.open("/c/f", "ab") as file:
            file.write(b"!")
        self.assertEqual(fs.cat("/c/f")[-1:], b"!")
        with fs.open("/c/t", "w", encoding="utf-16") as file:
            file.write("čaj")
        with fs.open("/c/t", "r", encoding="utf-16") as file:
            self.assertEqual(file.read(), "čaj")
        before = fs.ukey("/c/f")
        fs.touch("/c/f")
        self.assertEqual(fs.size("/c/f"), 0)
        self.assertNotEqual(fs.ukey("/c/f"), before)
        mapper = fs.get_mapper("/map")
        mapper["a/b"] = b"value"
        self.assertEqual((list(mapper), mapper["a/b"]), (["a/b"], b"value"))

    def test_open_files_tell_what_they_are(self):
        """Libraries read these attributes of any file of fsspec."""
        host = tempfile.TemporaryDirectory()
        self.addCleanup(host.cleanup)
        local = fsspec.filesystem("file")
        for mode in ("rb", "r+b", "ab", "wb", "xb"):
            found = []
            for fs, path in ((local, os.path.join(host.name, "f")), (self.fs, "/o/f")):
                fs.pipe_file(path, b"12345") if mode != "xb" else fs.rm(path)
                with fs.open(path, mode) as file:
                    self.assertIs(file.fs, fs)
                    self.assertEqual((file.path, file.name), (path, path))
                    size = file.size if "w" not in mode else None
                    found.append((file.mode, file.blocksize, size))
                self.assertTrue(file.closed)
            self.assertEqual(*found, mode)
        with self.fs.open("/o/f", "rb", block_size=1 << 16) as file:
            self.assertEqual(file.blocksize, 1 << 16)
        with self.fs.open("/o/f", "wb") as file:
            file.write(b"123")
            file.flush()
            self.assertEqual(file.size, 3)
        with self.fs.transaction, self.fs.open("/o/f", "ab") as file:
            self.assertEqual((file.path, file.mode, file.size), ("/o/f", "ab", 3))
            self.assertIs(file.fs, self.fs)

    def test_blocks(self):
        lines = b"".join(b"line %d\n" % n for n in range(1000))
        self.fs.pipe_file("/lines", lines)
        for block in (lines, lines[:-1]):
            self.fs.pipe_file("/lines", block)
            parts = [
                self.fs.read_block("/lines", at, 777, delimiter=b"\n")
                for at in range(0, len(block), 777)
            ]
            self.assertEqual(b"".join(parts), block)
        self.assertEqual(self.fs.read_block("/lines", 3, None, delimiter=b"\n"), lines[7:-1])

    def test_remove(self):
        fs = self.fs
        fs.pipe({"/r/a": b"", "/r/b": b"", "/r/s/c": b""})
        self.assertRaises(OSError, fs.rm, "/r")
        fs.rm("/r/a")
        fs.rm(["/r/b"])
        fs.rm("/r/s/*")
        self.assertEqual(fs.find("/r"), [])
        fs.rm("/r", recursive=True)
        self.assertFalse(fs.exists("/r"))
        self.assertRaises(FileNotFoundError, fs.rm, "/r")

    def test_move_is_one_step(self):
        """Race: a reader looks for a directory that moves. It sees the whole, under one name."""
        fs = self.fs
        fs.pipe({f"/one/{n}": b"x" for n in range(20)})
        stop, failures = threading.Event(), []

        def look():
            while not stop.is_set():
                for name in ("/one", "/two"):
                    try:
                        if len(fs.ls(name, detail=False)) != 20:
                            failures.append(name)
                    except FileNotFoundError:
                        pass

        reader = threading.Thread(target=look)
        reader.start()
        for _ in range(50):
            fs.mv("/one", "/two")
            fs.mv("/two", "/one")
        stop.set()
        reader.join()
        self.assertEqual(failures, [])
        fs.mkdir("/into")
        fs.mv("/one", "/into")
        self.assertEqual(len(fs.ls("/into/one")), 20)
        self.assertRaises(FileNotFoundError, fs.mv, "/none", "/x/y")
        self.assertFalse(fs.exists("/x"))

    def test_transactions(self):
        fs = self.fs
        fs.pipe_file("/t/kept", b"old")
        with fs.transaction:
            fs.pipe_file("/t/new", b"1")
            with fs.open("/t/kept", "ab") as file:
                file.write(b"+new")
            fs.cp_file("/t/kept", "/t/copy")
            fs.task.write_bytes("/t/random", b"0123")
            with fs.open("/t/random", "r+b") as file:
                self.assertEqual(file.read(2), b"01")
                file.write(b"xx")
            self.assertEqual(fs.cat("/t/random"), b"0123")
            self.assertRaises(FileNotFoundError, fs.open, "/t/none", "r+b")
            self.assertFalse(fs.exists("/t/new"))
            self.assertEqual(fs.cat("/t/kept"), b"old")
        self.assertEqual(fs.cat("/t/new"), b"1")
        self.assertEqual(fs.cat("/t/random"), b"01xx")
        fs.rm("/t/random")
        self.assertEqual((fs.cat("/t/kept"), fs.cat("/t/copy")), (b"old+new", b"old"))
        with self.assertRaises(ZeroDivisionError), fs.transaction:
            fs.pipe_file("/t/never", b"1")
            fs.pipe_file("/t/kept", b"overwritten")
            1 / 0
        self.assertEqual(fs.cat("/t/kept"), b"old+new")
        names = ["/t/copy", "/t/kept", "/t/new"]
        self.assertEqual(sorted(fs.ls("/t", detail=False)), names)
        with self.assertRaises(FileExistsError), fs.transaction:
            with fs.open("/t/late", "xb") as file:
                file.write(b"mine")
            fs.task.write_bytes("/t/late", b"theirs")
        self.assertEqual(fs.cat("/t/late"), b"theirs")

    def test_coroutines(self):
        async def use(fs):
            await fs._pipe({"/a/1": b"one", "/a/2": b"x" * 10_000})
            both = await asyncio.gather(fs._cat_file("/a/1"), fs._cat_file("/a/2", 0, 3))
            self.assertEqual(both, [b"one", b"xxx"])
            self.assertEqual(await fs._find("/a"), ["/a/1", "/a/2"])
            self.assertEqual(await fs._glob("/a/*1"), ["/a/1"])
            both = await fs._cat("/a", recursive=True, on_error="omit")
            self.assertEqual(sorted(both), ["/a/1", "/a/2"])
            self.assertEqual((await fs._info("/a/2"))["size"], 10_000)
            await fs._mv_file("/a/1", "/a/3")
            await fs._copy("/a", "/b", recursive=True)
            self.assertEqual([top async for top, _, _ in fs._walk("/b")], ["/b"])
            await fs._rm("/a", recursive=True)
            self.assertFalse(await fs._exists("/a"))
            self.assertEqual(sorted(await fs._ls("/b", detail=False)), ["/b/2", "/b/3"])

        asyncio.run(use(self.asynchronous()))

    def test_many_threads_make_one_directory(self):
        """Race: threads write into a directory that is missing, and each finds that it is."""
        for step in range(30):
            gate, failures = threading.Barrier(4), []

            def write(number):
                gate.wait()
                try:
                    self.fs.pipe_file(f"/made/{step}/deep/{number}", b"x")
                except OSError as error:
                    failures.append(error)

            threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertEqual(len(self.fs.ls(f"/made/{step}/deep")), 4)

    @needs("pandas", "pyarrow")
    def test_pandas(self):
        import pandas

        frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})
        url = f"{self.fs.protocol}://frames/f"
        frame.to_csv(url + ".csv", index=False, storage_options=self.options)
        frame.to_parquet(url + ".parquet", storage_options=self.options)
        frame.to_json(url + ".json", storage_options=self.options)
        for read, suffix in (
            (pandas.read_csv, ".csv"),
            (pandas.read_parquet, ".parquet"),
            (pandas.read_json, ".json"),
        ):
            with self.subTest(suffix):
                self.assertTrue(read(url + suffix, storage_options=self.options).equals(frame))
        self.assertEqual(len(self.fs.find("/frames")), 3)

    @needs("pyarrow")
    def test_pyarrow(self):
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet

        table = pyarrow.table({"k": [1, 1, 2], "v": [1.5, 2.5, 3.5]})
        pyarrow.dataset.write_dataset(
            table, "/set", format="parquet", partitioning=["k"], filesystem=self.fs
        )
        back = pyarrow.dataset.dataset("/set", partitioning=["k"], filesystem=self.fs)
        self.assertEqual(sorted(back.to_table()["v"].to_pylist()), [1.5, 2.5, 3.5])
        pyarrow.parquet.write_table(table, "/one.parquet", filesystem=self.fs)
        self.assertEqual(pyarrow.parquet.read_table("/one.parquet", filesystem=self.fs), table)

    @needs("zarr")
    def test_zarr(self):
        import numpy
        import zarr

        data = numpy.arange(10_000).reshape(100, 100)
        store = zarr.storage.FsspecStore(self.asynchronous(), path="/array")
        array = zarr.create_array(store, shape=data.shape, chunks=(10, 100), dtype=data.dtype)
        array[:] = data
        url = f"{self.fs.protocol}://array"
        again = zarr.open_array(url, mode="r", storage_options=self.options)
        self.assertTrue((again[:] == data).all())
        self.assertGreater(len(self.fs.find("/array")), 10)


@needs("fsspec")
class Documentation(unittest.TestCase):
    def test_examples_in_docstrings(self):
        results = doctest.testmod(vfscale.fsspec)
        self.assertEqual((results.failed, results.attempted > 4), (0, True))

    def test_public_names_are_documented(self):
        for of in (VfscaleFileSystem, VfscaleVolumeFileSystem):
            self.assertGreater(len(of.__doc__), 100)


@needs("fsspec")
class InMemory(FileSystems, unittest.TestCase):
    def setUp(self):
        self.options = {"tree": uuid.uuid4().hex}
        self.fs = fsspec.filesystem("vfscale", **self.options)

    def asynchronous(self):
        return fsspec.filesystem("vfscale", asynchronous=True, **self.options)

    def test_trees_have_names(self):
        other = fsspec.filesystem("vfscale", tree=self.options["tree"] + "x")
        self.fs.pipe_file("/f", b"1")
        self.assertFalse(other.exists("/f"))
        again = VfscaleFileSystem(skip_instance_cache=True, **self.options)
        self.assertTrue(again.exists("/f"))
        self.assertTrue(pickle.loads(pickle.dumps(self.fs)).exists("/f"))

    def test_large_listings_are_kept_while_nothing_changes(self):
        fs, task = self.fs, self.fs.task
        fs.pipe({f"/a/b/{n:03}": b"x" for n in range(100)})
        calls = {
            "ls": lambda: {info["name"]: info["size"] for info in fs.ls("/a/b")},
            "names": lambda: dict.fromkeys(fs.ls("/a/b", detail=False)),
            "find": lambda: {n: i["size"] for n, i in fs.find("/a", detail=True).items()},
            "found": lambda: dict.fromkeys(fs.find("/a")),
        }
        fs.pipe_file("/elsewhere", b"")
        task.link("/a/b/000", "/second-name")
        held = task.open("/a/b/001", os.O_WRONLY)
        self.addCleanup(task.close, held)
        changes = [
            lambda: fs.pipe_file("/a/b/new", b"12"),
            lambda: fs.rm_file("/a/b/new"),
            lambda: fs.pipe_file("/a/b/050", b"longer"),
            lambda: task.write_bytes("/second-name", b"by another name"),
            lambda: task.write(held, b"by a descriptor"),
            lambda: task.truncate("/a/b/002", 9),
            lambda: task.fork().rename("/a/b/003", "/a/b/renamed"),
            lambda: task.replace("/a/b/004", "/elsewhere"),
            lambda: task.mkdir("/a/b/dir"),
        ]
        for number, change in enumerate(changes):
            for _ in range(3):
                listed = {name: call() for name, call in calls.items()}
            first, again = fs.ls("/a/b"), fs.ls("/a/b")
            self.assertIs(first[0], again[0])
            first.clear()
            self.assertEqual(len(fs.ls("/a/b")), len(again))
            change()
            fresh = VfscaleFileSystem(task=task.fork(), skip_instance_cache=True)
            sizes = {info["name"]: info["size"] for info in fresh.ls("/a/b")}
            files = {name: size for name, size in sizes.items() if not name.endswith("dir")}
            for name, call in calls.items():
                with self.subTest(change=number, call=name):
                    want = sizes if name in ("ls", "names") else files
                    want = want if name in ("ls", "find") else dict.fromkeys(want)
                    self.assertEqual(call(), want)
            self.assertNotEqual(calls["ls"](), listed["ls"])
        for _ in range(3):
            calls["ls"]()
        task.rename("/a", "/moved")
        self.assertRaises(FileNotFoundError, calls["ls"])
        self.assertEqual(fs.find("/a"), [])
        self.assertEqual(len(fs.find("/moved")), len(files))

    def test_kept_listings_are_for_those_who_may_see_them(self):
        tree = vfscale.memory(size=8 << 20)
        owner, task = tree.task(), tree.task()
        owner.makedirs("/d/private")
        for n in range(100):
            owner.write_bytes(f"/d/private/{n}", b"")
        fs = VfscaleFileSystem(task=task)
        for _ in range(3):
            self.assertEqual(len(fs.ls("/d/private")), 100)
        owner.chmod("/d", 0o700)
        task.set_credentials(1000, 1000)
        self.assertRaises(PermissionError, fs.ls, "/d/private")
        task = tree.task()
        fs = VfscaleFileSystem(task=task)
        for _ in range(3):
            fs.ls("/d/private")
        task.chroot("/d")
        self.assertRaises(FileNotFoundError, fs.ls, "/d/private")
        self.assertEqual(len(fs.ls("/private")), 100)

    def test_a_task_decides(self):
        tree = vfscale.memory(size=1 << 20)
        fs = VfscaleFileSystem(task=tree.task(uid=1000, gid=1000))
        self.assertRaises(PermissionError, fs.pipe_file, "/f", b"1")
        fs = VfscaleFileSystem(task=tree.task(), auto_mkdir=False)
        self.assertRaises(FileNotFoundError, fs.pipe_file, "/no/f", b"1")


@needs("fsspec")
class OnVolume(FileSystems, unittest.TestCase):
    def setUp(self):
        host = tempfile.TemporaryDirectory()
        self.addCleanup(host.cleanup)
        self.image = os.path.join(host.name, "disk.vfs")
        self.options = {"image": self.image, "create": 64 << 20}
        self.fs = fsspec.filesystem("vfscale+volume", **self.options)
        self.addCleanup(self.fs.close)

    def asynchronous(self):
        return fsspec.filesystem("vfscale+volume", asynchronous=True, **self.options)

    def test_survives_close(self):
        self.fs.pipe_file("/kept/f", b"1")
        self.fs.sync()
        self.fs.close()
        with fsspec.open(f"vfscale+volume://kept/f::{self.image}", "rb") as file:
            self.assertEqual(file.read(), b"1")
        VfscaleVolumeFileSystem(self.image).close()
        with vfscale.open_volume(self.image) as volume:
            self.assertEqual(volume.task().read_bytes("/kept/f"), b"1")

    def test_close_waits_for_calls_of_cancelled_coroutines(self):
        fs = self.asynchronous()

        async def use():
            await fs._pipe_file("/f", b"x" * (32 << 20))
            calls = [asyncio.ensure_future(fs._cat_file("/f")) for _ in range(20)]
            await asyncio.sleep(0.001)
            for call in calls:
                call.cancel()

        for _ in range(5):
            asyncio.run(use())
            self.fs.close()
            fs = self.asynchronous()

    def test_close_waits_for_files_that_are_closed_soon(self):
        self.fs.pipe_file("/f", b"1")
        file = self.fs.open("/f", "rb")
        thread = threading.Timer(0.1, file.close)
        thread.start()
        self.fs.close()
        thread.join()
        with self.asynchronous().open("/f", "rb") as file:
            with self.assertRaises(OSError) as raised:
                self.fs.close()
            self.assertEqual((raised.exception.errno, file.read()), (errno.EBUSY, b"1"))

    def test_bad_arguments(self):
        self.assertRaises(ValueError, VfscaleVolumeFileSystem)
        self.assertRaises(FileNotFoundError, VfscaleVolumeFileSystem, self.image + "-none")
        self.assertRaises(ValueError, VfscaleVolumeFileSystem, fo="x", target_protocol="s3")


if __name__ == "__main__":
    unittest.main()
