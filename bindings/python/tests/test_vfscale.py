"""Tests of what only the package has: trees, volumes, tasks, transfers, paths, threads."""

import ast
import doctest
import errno
import gc
import inspect
import io
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import warnings

import vfscale
import vfscale.patch
from vfscale import _vfscale


class WithHost(unittest.TestCase):
    def setUp(self):
        host = tempfile.TemporaryDirectory()
        self.addCleanup(host.cleanup)
        self.host = host.name
        self.task = vfscale.memory(size=64 << 20).task()


def small_pool(image):
    with vfscale.open_volume(image, 64 << 20):
        pass
    return vfscale.open_pool(image, convert=True)


class Branches(WithHost):
    def setUp(self):
        super().setUp()
        self.image = os.path.join(self.host, "disk.vfs")

    def raises(self, number, call, *arguments, **options):
        with self.assertRaises(OSError) as raised:
            call(*arguments, **options)
        self.assertEqual(raised.exception.errno, number, raised.exception)
        return raised.exception

    def lines(self, word):
        """Returns the example of the manual that has a word, with the path of the image."""
        manual = os.path.join(os.path.dirname(__file__), "../../../docs/PYTHON.md")
        with open(manual, encoding="utf-8") as file:
            blocks = [block.split("```")[0] for block in file.read().split("```python\n")[1:]]
        (lines,) = [block for block in blocks if word in block]
        return lines.replace("work.vfs", self.image)

    def test_the_best_of_twenty_is_kept(self):
        image, lines = self.image, self.lines("pool.adopt")
        with vfscale.open_volume(image, 256 << 20) as volume:
            volume.task().write_bytes("/score", b"-1")
        names = {"attempt": lambda task, n: task.write_bytes("/score", b"%d" % (n * 7 % 20))}
        exec(lines, names)
        with vfscale.open_volume(image) as volume:
            self.assertEqual(volume.task().read_bytes("/score"), b"19")
        with vfscale.open_pool(image) as pool:
            self.assertEqual([branch.name for branch in pool.branches()], ["main"])

    def test_the_best_of_twenty_and_what_goes_with_it_are_merged(self):
        with vfscale.open_volume(self.image, 256 << 20):
            pass

        def attempt(task, n):
            # Two attempts each want the same file.
            task.write_bytes(f"/part{n % 10}", b"%d" % n)
            return n * 7 % 20

        exec(self.lines("pool.merge"), {"attempt": attempt})
        with vfscale.open_volume(self.image) as volume:
            task = volume.task()
            for part in range(10):
                best = max(part, part + 10, key=lambda n: n * 7 % 20)
                self.assertEqual(task.read_bytes(f"/part{part}"), b"%d" % best)
            self.assertEqual(len(task.listdir("/")), 10)

    def test_a_merge_tells_its_conflicts(self):
        with small_pool(self.image) as pool:
            for name in ("a", "b"):
                pool.fork("main", name)
                with pool.open(name) as volume:
                    volume.task().write_bytes(b"/n\xffw", name.encode())
            self.assertTrue(pool.merge("a", dry_run=True).added == 1)
            self.assertTrue(pool.merge("a").done)
            conflict = vfscale.Conflict("/n\udcffw", "name", None)
            refused = pool.merge("b", strategy="fail")
            self.assertEqual((refused.done, refused.conflicts), (False, [conflict]))
            merged = pool.merge("b", into="main")
            self.assertEqual(merged.conflicts, [conflict._replace(beside="/n\udcffw.b")])
            self.assertRaises(ValueError, pool.merge, "b", strategy="mine")
            self.raises(errno.EINVAL, pool.merge, "b", "b")
            with pool.open():
                self.raises(errno.EBUSY, pool.merge, "b")

    def test_differences_are_written_and_applied_and_branches_get_another_base(self):
        with small_pool(self.image) as pool:
            pool.fork("main", "a")
            with pool.open("a") as volume:
                volume.task().write_bytes("/new", b"line\n")
            patch, layer = pool.patch("main", "a"), self.image + ".tar"
            self.assertIn(b"+++ b/new\n", patch)
            self.assertEqual(pool.layer("main", "a", layer), 2)
            with tarfile.open(layer) as archive:
                self.assertEqual(archive.getnames(), [".", "new"])
                self.assertEqual(archive.extractfile("new").read(), b"line\n")
            for source, is_layer in (patch, False), (memoryview(patch), False), (layer, True):
                pool.fork("main", "b")
                self.assertFalse(pool.apply("b", source, dry_run=True).done)
                applied = pool.apply("b", source)
                self.assertEqual((applied.is_layer, applied.done), (is_layer, True))
                with pool.open("b") as volume:
                    self.assertEqual(volume.task().read_bytes("/new"), b"line\n")
                pool.delete("b")
            with self.assertRaisesRegex(OSError, "new, line 1: can't be applied"):
                pool.apply("a", patch)
            self.raises(errno.ENOENT, pool.apply, "a", layer + ".none")
            with pool.open() as volume:
                volume.task().write_bytes("/other", b"1")
            self.assertEqual(pool.rebase("a", dry_run=True).kept, None)
            rebased = pool.rebase("a", "main")
            self.assertEqual((rebased.added, rebased.kept, rebased.done), (1, "a@1", True))
            self.assertEqual([it.path for it in pool.diff("main", "a")], ["/new"])
            self.assertFalse(pool.rebase("a").done)

    def test_branches_are_made_compared_adopted_and_rolled_back(self):
        with small_pool(self.image) as pool:
            with pool.open() as volume:
                task = volume.task()
                task.write_bytes("/gone", b"1")
                task.write_bytes("/old", b"moved")
                task.write_bytes("/f", b"1")
                # What was not synced is in the copy.
                pool.fork("main", "a")
                self.raises(errno.EBUSY, pool.open, "main")
                self.raises(errno.EBUSY, pool.close)
            self.assertFalse(pool.closed)
            self.assertEqual(pool.diff("main", "a"), [])
            with pool.open("a", sync_interval="never") as volume:
                task = volume.task()
                task.unlink("/gone")
                task.rename("/old", b"/n\xffw")
                task.write_bytes("/f", b"22")
                task.write_bytes("/new", b"1")
            found = {found.path: found[1:] for found in pool.diff("main", "a")}
            self.assertEqual(found["/gone"], ("removed", None, ()))
            self.assertEqual(found["/n\udcffw"], ("moved", "/old", ()))
            self.assertEqual(found["/new"], ("added", None, ()))
            self.assertEqual(found["/f"][0], "changed")
            self.assertIn("content", found["/f"][2])
            self.assertEqual(pool.rollback("a"), "a@1")
            self.assertEqual(pool.diff("main", "a"), [])
            self.assertEqual(pool.checkpoint("a", "text"), "a@2")
            self.raises(errno.EINVAL, pool.checkpoint, "a", "two\nlines")
            self.raises(errno.EINVAL, pool.rollback, "a", "main")
            with pool.open("a") as volume:
                volume.task().write_bytes("/f", b"333")
            self.assertEqual(pool.rollback("a", to="a@2"), "a@3")
            self.assertEqual(pool.diff("a@2", "a"), [])
            now, before = pool.log("a")[:2]
            self.assertEqual((now.kind, now.time_ns, now.parent), ("now", None, before.node))
            self.assertEqual((before.kind, before.text), ("checkpoint", "text"))
            self.assertTrue(before.time_ns > 0 and "a@2" in before.branches)
            pool.delete("a@3")
            pool.delete("a@2")
            pool.delete("a")
            pool.rename("a@1", "b")
            self.raises(errno.EINVAL, pool.set_limit, "b", 4096)
            pool.set_limit("b", 16 << 20)
            self.assertEqual([branch.limit for branch in pool.branches()], [16 << 20, None])
            with pool.open("b") as volume:
                self.raises(errno.EDQUOT, volume.task().write_bytes, "/large", bytes(20 << 20))
                volume.task().unlink("/large")
            pool.set_limit("b", None)
            pool.adopt("main", "b")
            with pool.open() as volume:
                self.assertEqual(volume.task().read_bytes("/f"), b"22")
            self.assertEqual([branch.name for branch in pool.branches()], ["main"])
            usage = pool.usage()
            self.assertTrue(0 < usage.free < usage.size)
        self.assertTrue(pool.closed)
        pool.close()
        self.assertRaises(ValueError, pool.branches)
        self.assertRaises(ValueError, pool.open)

    def test_errors_have_numbers_and_remedies(self):
        missing = self.raises(errno.ENOENT, vfscale.open_pool, self.image)
        self.assertEqual(missing.filename, self.image)
        with vfscale.open_volume(self.image, 64 << 20):
            self.raises(errno.EBUSY, vfscale.open_pool, self.image)
        self.raises(errno.EINVAL, vfscale.open_pool, self.image)
        with vfscale.open_pool(self.image, convert=True) as pool:
            pool.fork("main", "fixed", read_only=True)
            pool.fork("main", "short", temporary=True, as_synced=True)
            self.assertEqual([it.name for it in pool.branches() if it.read_only], ["fixed"])
            self.raises(errno.EEXIST, pool.fork, "main", "fixed")
            self.raises(errno.ENOENT, pool.fork, "none", "a")
            self.raises(errno.ENOENT, pool.diff, "main", "none")
            self.raises(errno.ENOENT, pool.open, "none")
            self.raises(errno.EINVAL, pool.delete, "main")
            self.assertRaises(ValueError, pool.fork, "main", "a", read_only=True, temporary=True)
            with pool.open("fixed") as one, pool.open("fixed") as two:
                self.assertEqual(one.task().listdir("/"), two.task().listdir("/"))
        with vfscale.open_pool(self.image, read_only=True) as pool:
            self.assertEqual([it.name for it in pool.branches()], ["fixed", "main"])

    def test_what_an_overlay_has_becomes_a_branch(self):
        folder = os.path.dirname(self.image)
        view, upper, work = (os.path.join(folder, name) for name in ("view", "upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        with open(os.path.join(upper, "f"), "wb") as file:
            file.write(b"above")
        places = {"view": view, "upper": upper, "work": work, "userxattr": True}
        with small_pool(self.image) as pool:
            pool.fork("main", "base", read_only=True)
            self.raises(errno.EINVAL, pool.view, "main", view)
            made = pool.view("base", view)
            self.assertEqual(made, (1, os.path.getsize(view), None))
            done = pool.ingest("main", "base", **places)
            self.assertEqual(done, (2, 0, 5, None))
            with pool.open() as volume:
                self.assertEqual(volume.task().read_bytes("/f"), b"above")
            self.assertEqual(pool.ingest("main", "base", **places).kept, "main@native 0")
            places["upper"] = os.path.join(folder, "none")
            self.raises(errno.ENOENT, pool.ingest, "main", "base", **places)

    def test_branches_are_used_by_threads(self):
        with small_pool(self.image) as pool:

            def work(number):
                pool.fork("main", f"b{number}")
                with pool.open(f"b{number}") as volume:
                    volume.task().write_bytes("/f", b"%d" % number)
                self.assertEqual(len(pool.diff("main", f"b{number}")), 1)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(pool.branches()), 9)

    def test_a_pool_that_is_dropped_warns(self):
        pool = small_pool(self.image)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del pool
            gc.collect()
        self.assertIn("unclosed pool", str(caught[0].message))
        vfscale.open_pool(self.image).close()


class Trees(WithHost):
    def test_size_is_bounded(self):
        task = vfscale.memory(size=1 << 20, mode=0o1777, uid=7, gid=8).task()
        found = task.stat("/")
        self.assertEqual((found.st_uid, found.st_gid, found.st_mode & 0o7777), (7, 8, 0o1777))
        with self.assertRaises(OSError) as raised:
            task.write_bytes("/big", bytes(2 << 20))
        self.assertEqual(raised.exception.errno, errno.ENOSPC)

    def test_options_have_the_names_of_a_mount(self):
        self.assertEqual(vfscale.memory(1 << 20, inodes=9).task().statvfs("/").f_files, 9)
        image = os.path.join(self.host, "disk.vfs")
        options = {"sync_interval": 0.5, "discard": False, "errors": "remount-ro", "commit": "never"}
        with vfscale.open_volume(image, 16 << 20, mode=0o700, uid=3, **options) as volume:
            found = volume.task().stat("/")
            self.assertEqual((found.st_mode & 0o777, found.st_uid), (0o700, 3))
        for error, wrong in [
            (TypeError, {"colour": 1}),
            (TypeError, {"inodes": 5}),
            (ValueError, {"sync_interval": "soon"}),
            (ValueError, {"discard": "maybe"}),
        ]:
            with self.assertRaisesRegex(error, next(iter(wrong))):
                vfscale.open_volume(image, **wrong)

    def test_volumes_keep_what_was_written(self):
        image = os.path.join(self.host, "disk.vfs")
        with vfscale.open_volume(image, 16 << 20) as volume:
            self.assertTrue(volume.is_new)
            task = volume.task()
            task.write_bytes("/f", b"kept" * 10_000)
        self.assertTrue(volume.closed)
        self.assertRaises(ValueError, task.listdir, "/")
        self.assertRaises(ValueError, volume.task)
        volume.close()
        with vfscale.open_volume(pathlib.Path(image), read_only=True) as volume:
            self.assertFalse(volume.is_new)
            task = volume.task()
            self.assertEqual(task.read_bytes("/f"), b"kept" * 10_000)
            with self.assertRaises(OSError) as raised:
                task.mkdir("/d")
            self.assertEqual(raised.exception.errno, errno.EROFS)

    def test_a_volume_with_open_files_stays_open(self):
        volume = vfscale.open_volume(os.path.join(self.host, "disk.vfs"), create=16 << 20)
        task = volume.task()
        file = task.open("/f", "wb")
        file.write(b"data")
        with self.assertRaises(OSError) as raised:
            volume.close()
        self.assertEqual(raised.exception.errno, errno.EBUSY)
        file.close()
        cycle = [task.open("/f", "rb")]
        cycle.append(cycle)
        del cycle
        fd = task.open("/f", os.O_RDONLY)
        self.assertEqual(task.read(fd, 9), b"data")
        volume.close()

    def test_errors_of_volumes_name_the_remedy(self):
        image = os.path.join(self.host, "none.vfs")
        with self.assertRaises(FileNotFoundError) as raised:
            vfscale.open_volume(image)
        self.assertIn("mkfs", str(raised.exception))
        self.assertEqual(raised.exception.filename, image)
        with open(image, "wb") as file:
            file.write(bytes(1 << 20))
        self.assertRaises(OSError, vfscale.open_volume, image)

    def test_a_dropped_volume_warns_and_is_released(self):
        image = os.path.join(self.host, "disk.vfs")
        volume = vfscale.open_volume(image, create=16 << 20)
        volume.task().write_bytes("/f", b"1")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            del volume
            gc.collect()
        self.assertEqual([warning.category for warning in seen], [ResourceWarning])
        with vfscale.open_volume(image) as volume:
            self.assertEqual(volume.task().read_bytes("/f"), b"1")

    def test_sync(self):
        with vfscale.open_volume(os.path.join(self.host, "v"), create=16 << 20) as volume:
            volume.task().write_bytes("/f", b"1")
            volume.sync()
            volume.task().sync()


class Tasks(WithHost):
    def test_credentials(self):
        tree = vfscale.memory(size=1 << 20)
        root, user = tree.task(), tree.task(uid=1000, gid=100, groups=(7,))
        self.assertEqual((user.getuid(), user.getegid(), user.getgroups()), (1000, 100, [7]))
        self.assertEqual((user.getcapabilities(), root.getcapabilities() > 0), (0, True))
        self.assertRaises(PermissionError, user.mkdir, "/d")
        root.mkdir("/home", 0o770)
        root.chown("/home", -1, 7)
        root.chmod("/home", 0o770)
        user.mkdir("/home/own")
        self.assertEqual(root.stat("/home/own").st_uid, 1000)
        user.set_credentials(1000, 100)
        self.assertRaises(PermissionError, user.listdir, "/home")
        self.assertRaises(PermissionError, user.chroot, "/")

    def test_roots(self):
        tree = vfscale.memory(size=1 << 20)
        task = tree.task()
        task.makedirs("/jail/inner")
        guest = tree.task(root="/jail")
        self.assertEqual(guest.listdir("/.."), ["inner"])
        guest.chdir("inner")
        self.assertEqual((guest.getcwd(), guest.getcwdb()), ("/inner", b"/inner"))
        task.chroot("/jail")
        task.chdir("/")
        self.assertEqual(task.listdir(), ["inner"])
        with self.assertRaises(FileNotFoundError) as raised:
            tree.task(root="/none")
        self.assertEqual(raised.exception.filename, "/none")

    def test_end_closes_descriptors(self):
        with vfscale.memory(size=1 << 20).task() as task:
            fd = task.open("/f", os.O_CREAT | os.O_RDWR)
            child = task.fork()
            file = task.open("/g", "w+b")
        self.assertTrue(task.ended)
        self.assertRaises(ValueError, task.fstat, fd)
        self.assertEqual(child.fstat(fd).st_size, 0)
        file.write(b"still open")
        file.close()
        self.assertEqual(child.read_bytes("/g"), b"still open")

    def test_directory_of_a_descriptor(self):
        self.task.makedirs("/d/e")
        fd = self.task.open("/d", os.O_RDONLY)
        self.task.fchdir(fd)
        self.assertEqual(self.task.getcwd(), "/d")
        self.assertEqual([e.path for e in self.task.scandir(fd)], ["e"])
        self.assertTrue(next(self.task.scandir(fd)).stat().st_mode)

    def test_whole_files(self):
        task = self.task
        for size in (0, 1, 4095, 4096, 4097, 1 << 20):
            data = os.urandom(size)
            task.write_bytes("/f", data)
            self.assertEqual(task.read_bytes("/f"), data)
            task.replace_bytes("/f", memoryview(data), durable=True)
            self.assertEqual(task.read_bytes("/f"), data)
        self.assertEqual(task.copyfile("/f", "/g"), 1 << 20)
        self.assertEqual(task.read_bytes("/g"), data)
        task.write_text("/t", "čaj")
        self.assertEqual(task.read_text("/t"), "čaj")
        self.assertRaises(IsADirectoryError, task.read_bytes, "/")
        with self.assertRaises(FileNotFoundError) as raised:
            task.read_bytes("/none")
        self.assertEqual(raised.exception.filename, "/none")

    def test_locks_of_two_tasks(self):
        tree = vfscale.memory(size=1 << 20)
        one, two = tree.task(), tree.task()
        one.write_bytes("/f", b"0123456789")
        first, second = one.open("/f", os.O_RDWR), two.open("/f", os.O_RDWR)
        one.lockf(first, os.F_LOCK, 5)
        for command, number in ((os.F_TLOCK, errno.EAGAIN), (os.F_TEST, errno.EACCES)):
            with self.assertRaises(OSError) as raised:
                two.lockf(second, command, 0)
            self.assertEqual(raised.exception.errno, number)
        two.lseek(second, 5, os.SEEK_SET)
        two.lockf(second, os.F_TLOCK, 0)
        two.lseek(second, 0, os.SEEK_SET)
        release = threading.Timer(0.1, one.lockf, (first, os.F_ULOCK, 0))
        release.start()
        two.lockf(second, os.F_LOCK, 0)
        release.join()
        self.assertRaises(BlockingIOError, one.lockf, first, os.F_TLOCK, 0)
        two.end()
        one.lockf(first, os.F_TLOCK, 0)

    def test_rename_without_replacing(self):
        self.task.write_bytes("/a", b"a")
        self.task.write_bytes("/b", b"b")
        self.assertRaises(FileExistsError, self.task.renameat2, "/a", "/b", 1)
        self.task.renameat2("/a", "/b", 2)
        self.assertEqual(self.task.read_bytes("/a"), b"b")


class Transfers(WithHost):
    def test_in_and_out(self):
        source = os.path.join(self.host, "in")
        os.makedirs(os.path.join(source, "sub"))
        with open(os.path.join(source, "sub", "f"), "wb") as file:
            file.write(b"x" * 10_000)
        os.link(os.path.join(source, "sub", "f"), os.path.join(source, "g"))
        os.symlink("g", os.path.join(source, "s"))
        done = self.task.import_tree(source, "/t", owner=(5, 6))
        self.assertEqual(done, {"files": 4, "bytes": 10_000, "skipped": 0})
        self.assertEqual(self.task.stat("/t/g").st_nlink, 2)
        self.assertEqual(self.task.stat("/t/g").st_uid, 5)
        self.assertEqual(self.task.readlink("/t/s"), "g")
        target = os.path.join(self.host, "out")
        self.task.export_tree("/t", target)
        with open(os.path.join(target, "s"), "rb") as file:
            self.assertEqual(file.read(), b"x" * 10_000)
        with self.assertRaises(FileExistsError) as raised:
            self.task.export_tree("/t", target)
        self.assertEqual(raised.exception.filename, target)

    def test_what_a_guest_made_goes_out(self):
        self.task.mkdir("/w")
        self.task.write_bytes("/w/evil", b"program")
        self.task.chmod("/w/evil", 0o6755)
        self.task.mknod("/w/disk", 0o060666, os.makedev(8, 0))
        self.task.symlink("/../secret", "/w/trap")
        target = os.path.join(self.host, "guest")
        done = self.task.export_tree("/w", target, links="skip")
        self.assertEqual(done, {"files": 2, "bytes": 7, "skipped": 2})
        self.assertEqual(os.listdir(target), ["evil"])
        self.assertEqual(os.stat(os.path.join(target, "evil")).st_mode & 0o7777, 0o755)
        with self.assertRaises(OSError) as raised:
            self.task.export_tree("/w", target + "2", links="refuse")
        self.assertEqual(raised.exception.errno, errno.EXDEV)
        self.assertEqual(raised.exception.filename, "/w/trap")
        with self.assertRaises(ValueError):
            self.task.export_tree("/w", target + "3", links="follow")

    def test_a_tree_deeper_than_a_path(self):
        for _ in range(3000):
            self.task.mkdir("d")
            self.task.chdir("d")
        self.task.write_bytes("leaf", b"bottom")
        self.task.chdir("/")
        with self.assertRaises(OSError) as raised:
            list(self.task.walk("/"))
        self.assertEqual(raised.exception.errno, errno.ENAMETOOLONG)
        errors = []
        self.assertGreater(len(list(self.task.walk("/", onerror=errors.append))), 2000)
        self.assertEqual(len(errors), 1)
        self.task.export_tree("/d", os.path.join(self.host, "deep"))
        self.task.import_tree(os.path.join(self.host, "deep"), "/back")
        self.task.chdir("/back")
        for _ in range(2999):
            self.task.chdir("d")
        self.assertEqual(self.task.read_bytes("leaf"), b"bottom")
        self.task.chdir("/")
        subprocess.run(["rm", "-rf", os.path.join(self.host, "deep")], check=True)


class Paths(WithHost):
    def test_like_pathlib(self):
        path = self.task.Path("/a", "b") / "c.tar.gz"
        pure = pathlib.PurePosixPath("/a/b/c.tar.gz")
        for name in ("name", "stem", "suffix", "suffixes", "parts", "root", "anchor"):
            self.assertEqual(getattr(path, name), getattr(pure, name), name)
        self.assertEqual(str(path.with_suffix(".zip")), "/a/b/c.tar.zip")
        self.assertEqual([str(p) for p in path.parents], ["/a/b", "/a", "/"])
        self.assertEqual(str(path.relative_to("/a")), "b/c.tar.gz")
        self.assertEqual(path, self.task.Path("/a/b/c.tar.gz"))
        self.assertNotEqual(path, vfscale.memory(size=1 << 20).task().Path("/a/b/c.tar.gz"))
        self.assertRaises(TypeError, open, path)

        class Odd:
            def __vfspath__(self):
                raise AttributeError("mine")

            def __fspath__(self):
                return "/a"

        for call in (self.task.stat, self.task.abspath, self.task.Path):
            self.assertRaisesRegex(AttributeError, "mine", call, Odd())

    def test_files(self):
        base = self.task.Path("/base")
        base.mkdir()
        base.mkdir(exist_ok=True)
        self.assertRaises(FileExistsError, base.mkdir)
        (base / "x" / "y").mkdir(parents=True)
        file = base / "x" / "y" / "note.txt"
        self.assertEqual(file.write_text("tea"), 3)
        self.assertEqual((file.read_text(), file.read_bytes()), ("tea", b"tea"))
        self.assertTrue(file.is_file() and file.exists() and not file.is_dir())
        self.assertEqual(self.task.stat(file).st_size, 3)
        link = base / "link"
        link.symlink_to(file)
        self.assertEqual(link.resolve(), file)
        self.assertEqual([p.name for p in base.rglob("*.txt")], ["note.txt"])
        self.assertEqual([str(p) for p in base.glob("*/y")], ["/base/x/y"])
        self.assertEqual(sorted(p.name for p in base.iterdir()), ["link", "x"])
        moved = file.rename("/base/moved")
        self.assertEqual(str(moved), "/base/moved")
        moved.touch()
        self.assertRaises(FileExistsError, moved.touch, exist_ok=False)
        moved.unlink()
        moved.unlink(missing_ok=True)
        self.assertRaises(FileNotFoundError, moved.unlink)
        tops = [str(top) for top, _, _ in base.walk()]
        self.assertEqual(tops, ["/base", "/base/x", "/base/x/y"])


class Threads(WithHost):
    def test_waits_release_the_interpreter(self):
        self.task.mkfifo("/fifo")

        def write():
            with self.task.open("/fifo", "wb") as file:
                file.write(b"line\nrest")

        writer = threading.Thread(target=write)
        with_reader = threading.Timer(0.05, writer.start)
        with_reader.start()
        with self.task.open("/fifo", "rb", buffering=0) as file:
            self.assertEqual((file.readline(), file.readall()), (b"line\n", b"rest"))
            self.assertFalse(file.seekable())
        writer.join()

    def test_both_ends_of_a_fifo_meet(self):
        """Race: the second end comes while the first looks for signals. Then both are open: the
        writer has a reader, and the reader gets the data."""
        self.task.mkfifo("/fifo")
        failures = []

        def write():
            time.sleep(0.05)
            try:
                fd = self.task.open("/fifo", os.O_WRONLY)
                self.task.write(fd, b"x")
                self.task.close(fd)
            except OSError as error:
                failures.append(error)
                # The reader waits for a writer.
                self.task.close(self.task.open("/fifo", os.O_WRONLY))

        for _ in range(60):
            writer = threading.Thread(target=write)
            writer.start()
            fd = self.task.open("/fifo", os.O_RDONLY)
            found = self.task.read(fd, 1)
            writer.join()
            self.task.close(fd)
            self.assertEqual((found, failures), (b"x", []))

    def test_a_signal_ends_a_wait(self):
        self.task.mkfifo("/fifo")
        reader, _ = self.task.pipe()

        class Rang(Exception):
            pass

        def ring(*_):
            raise Rang

        former = signal.signal(signal.SIGALRM, ring)
        self.addCleanup(signal.signal, signal.SIGALRM, former)
        for wait in (lambda: self.task.open("/fifo", "rb"), lambda: self.task.read(reader, 1)):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            self.assertRaises(Rang, wait)

    def test_waits_need_one_thread(self):
        """A process at the limit of its user's threads gets an error, and waits once it may."""
        script = """
import errno, os, resource, signal, vfscale
task = vfscale.memory(size=1 << 20).task()
reader, writer = task.pipe()
if os.getuid() == 0:
    # Root has no limit.
    os.setgroups([])
    os.setresgid(54321, 54321, 54321)
    os.setresuid(54321, 54321, 54321)
_, hard = resource.getrlimit(resource.RLIMIT_NPROC)
def limit(threads):
    resource.setrlimit(resource.RLIMIT_NPROC, (threads, hard))
def threads():
    return len(os.listdir("/proc/self/task"))
def wait():
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    assert task.read(reader, 1) == b"x"
signal.signal(signal.SIGALRM, lambda *_: task.write(writer, b"x"))
limit(1)
try:
    task.read(reader, 1)
except OSError as error:
    assert error.errno == errno.EAGAIN, error
else:
    raise AssertionError("no error")
limit(hard)
while threads() == 1:
    wait()
limit(1)
for _ in range(5):
    wait()
assert threads() == 2
"""
        command = [sys.executable, "-W", "error", "-c", script]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_large_copies_release_the_interpreter(self):
        """While one thread copies, another runs: it counts on, though its share is never forced."""
        data = bytes(32 << 20)
        self.task.write_bytes("/big", data)
        file = self.task.open("/big", "r+b", buffering=0)
        into = bytearray(len(data))
        copies = {
            "read": lambda: file.pread(len(data), 0),
            "readinto": lambda: (file.seek(0), file.readinto(into)),
            "write": lambda: file.pwrite(data, 0),
            "read_bytes": lambda: self.task.read_bytes("/big"),
            "write_bytes": lambda: self.task.write_bytes("/big", data),
        }
        for name, copy in copies.items():
            with self.subTest(name):
                # The other thread may be late, on a machine with much to do.
                self.assertTrue(any(self.turns_during(copy) > 0 for _ in range(50)))

    def turns_during(self, call):
        former = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, former)
        turns, stop = [0], threading.Event()
        ready = threading.Event()

        def count():
            ready.set()
            while not stop.is_set():
                turns[0] += 1
                time.sleep(0.0002)

        other = threading.Thread(target=count)
        other.start()
        ready.wait()
        # No thread is made to give the lock up now.
        sys.setswitchinterval(5)
        # Ends what the other thread has requested before.
        time.sleep(0.001)
        before = turns[0]
        call()
        during = turns[0] - before
        sys.setswitchinterval(former)
        stop.set()
        other.join()
        return during

    def test_many_threads_on_one_task(self):
        failures = []

        def work(number):
            try:
                for step in range(200):
                    path = f"/t{number}-{step % 7}"
                    self.task.write_bytes(path, b"%d" % step)
                    self.assertEqual(self.task.read_bytes(path), b"%d" % step)
                    self.task.rename(path, path + "x")
                    self.task.unlink(path + "x")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.task.listdir("/"), [])


class Documentation(WithHost):
    def examples(self):
        found = {vfscale.__name__: vfscale.__doc__}
        for module in (vfscale.tree, vfscale.task, vfscale.file, vfscale.path, vfscale.patch):
            for test in doctest.DocTestFinder().find(module):
                found[test.name] = test.docstring
        for of in vars(_vfscale).values():
            if isinstance(of, type):
                found[of.__name__] = of.__doc__
                for name, member in vars(of).items():
                    found[f"{of.__name__}.{name}"] = getattr(member, "__doc__", None)
        return {name: text for name, text in found.items() if text and ">>>" in text}

    def test_examples_in_docstrings(self):
        examples = self.examples()
        self.assertGreater(len(examples), 20)
        parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
        for number, (name, text) in enumerate(sorted(examples.items())):
            names = {
                "vfscale": vfscale,
                "memory": vfscale.memory,
                "open_volume": vfscale.open_volume,
                "open_pool": vfscale.open_pool,
                "image": os.path.join(self.host, f"{number}.vfs"),
                "task": vfscale.memory(size=64 << 20).task(),
            }
            if "pool" in text and "open_pool" not in text:
                names["pool"] = small_pool(names["image"])
                self.addCleanup(names["pool"].close)
            with self.subTest(name):
                lines = []
                test = parser.get_doctest(text, names, name, None, 0)
                result = runner.run(test, out=lines.append)
                self.assertEqual(result.failed, 0, "".join(lines))

    def test_stubs_have_every_name_and_argument(self):
        folder = os.path.dirname(vfscale.__file__)
        with open(os.path.join(folder, "__init__.pyi"), encoding="utf-8") as file:
            stubs = {
                node.name: {
                    member.name: [
                        argument.arg
                        for argument in member.args.args[1:] + member.args.kwonlyargs
                    ]
                    for member in node.body
                    if isinstance(member, ast.FunctionDef)
                }
                for node in ast.parse(file.read()).body
                if isinstance(node, ast.ClassDef)
            }
        inherited = {"File": dir(io.RawIOBase), "Memory": ["task"], "Volume": ["task"]}
        for of in ("Task", "File", "Path", "Memory", "Volume", "DirEntry"):
            kind = getattr(vfscale, of)
            public = [name for name in dir(kind) if not name.startswith("_")]
            public = [name for name in public if not isinstance(getattr(kind, name), (int, str))]
            known = [*stubs[of], *inherited.get(of, [])]
            self.assertEqual(sorted(set(public) - set(known)), [], of)
            for name, arguments in stubs[of].items():
                call = getattr(kind, name)
                if name.startswith("_") or not callable(call):
                    continue
                found = [
                    argument.name
                    for argument in inspect.signature(call).parameters.values()
                    if argument.kind is not argument.VAR_POSITIONAL
                ]
                self.assertEqual(found[1:], arguments, f"{of}.{name}")

    def test_public_names_are_documented(self):
        classes = (vfscale.Task, vfscale.File, vfscale.Volume, vfscale.Path, vfscale.DirEntry)
        bare = [
            f"{of.__name__}.{name}"
            for of in classes
            for name in dir(of)
            if not name.startswith("_")
            and not isinstance(getattr(of, name), (int, str))
            and not getattr(of, name).__doc__
        ]
        self.assertEqual(bare, [])


if __name__ == "__main__":
    unittest.main()
