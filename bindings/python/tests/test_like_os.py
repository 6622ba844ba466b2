"""Assertions that hold for `os` on the host, for a tree in memory and for a volume alike."""

import errno
import io
import os
import posixpath
import shutil
import stat
import sys
import tempfile
import threading
import unittest

import vfscale


class Calls:
    """Assertions on `self.m`, which is `os` or a task, below the directory `self.base`."""

    def at(self, *names):
        return posixpath.join(self.base, *names)

    def write(self, path, data=b""):
        with self.open(path, "wb") as file:
            file.write(data)

    def fails(self, number, call, *args, **kwargs):
        with self.assertRaises(OSError) as raised:
            call(*args, **kwargs)
        self.assertEqual(
            errno.errorcode[raised.exception.errno], errno.errorcode[number], raised.exception
        )
        return raised.exception

    # Errors.

    def test_errors_have_numbers_classes_and_paths(self):
        path = self.at("none")
        error = self.fails(errno.ENOENT, self.m.stat, path)
        self.assertIsInstance(error, FileNotFoundError)
        self.assertEqual((error.filename, error.filename2), (path, None))
        self.assertEqual(str(error), f"[Errno 2] No such file or directory: {path!r}")
        error = self.fails(errno.ENOENT, self.m.rename, path, self.at("other"))
        self.assertEqual((error.filename, error.filename2), (path, self.at("other")))
        error = self.fails(errno.ENOENT, self.m.listdir, os.fsencode(path))
        self.assertEqual(error.filename, os.fsencode(path))
        self.write(self.at("file"))
        self.fails(errno.ENOTDIR, self.m.stat, self.at("file", "x"))
        self.fails(errno.EEXIST, self.m.mkdir, self.at("file"))
        self.fails(errno.EBADF, self.m.read, 987, 1)
        self.assertIsNone(self.fails(errno.EBADF, self.m.close, 987).filename)
        self.assertEqual(self.fails(errno.EBADF, self.m.stat, 987).filename, 987)

    def test_paths_of_the_wrong_kind(self):
        for call in (self.m.stat, self.m.listdir, self.m.unlink, self.m.mkdir):
            self.assertRaises(TypeError, call, 1.5)
            self.assertRaises(ValueError, call, "a\0b")
        self.assertRaises(TypeError, self.m.unlink, None)
        self.assertRaises(TypeError, self.m.write, 1, "text")

    def test_exceptions_of_paths_are_the_callers(self):
        class Odd:
            def __init__(self, result):
                self.result = result

            def __fspath__(self):
                if isinstance(self.result, type):
                    raise self.result
                return self.result

        calls = (self.m.stat, self.m.listdir, self.m.unlink, self.m.path.abspath, self.open)
        for call in calls:
            for kind in (KeyboardInterrupt, AttributeError, ZeroDivisionError, OSError):
                self.assertRaises(kind, call, Odd(kind))
            self.assertRaisesRegex(TypeError, "Odd.*not int", call, Odd(1))
            self.assertRaises(TypeError, call, Odd)
        self.assertTrue(stat.S_ISDIR(self.m.stat(Odd(self.base)).st_mode))

    def test_names_that_are_not_utf8(self):
        raw = os.fsencode(self.at()) + b"/\xff\xfe"
        self.write(raw, b"1")
        (name,) = self.m.listdir(self.base)
        self.assertEqual(name, "\udcff\udcfe")
        self.assertEqual(self.m.listdir(os.fsencode(self.base)), [b"\xff\xfe"])
        self.assertEqual(self.m.stat(self.at(name)).st_size, 1)

    # Names.

    def test_directories(self):
        self.m.mkdir(self.at("d"), 0o750)
        self.assertEqual(stat.S_IMODE(self.m.stat(self.at("d")).st_mode), 0o750)
        self.m.makedirs(self.at("a", "b", "c"))
        self.fails(errno.EEXIST, self.m.makedirs, self.at("a", "b", "c"))
        self.m.makedirs(self.at("a", "b", "c"), exist_ok=True)
        self.write(self.at("f"))
        self.fails(errno.EEXIST, self.m.makedirs, self.at("f"), exist_ok=True)
        self.fails(errno.ENOTEMPTY, self.m.rmdir, self.at("a"))
        self.m.rmdir(self.at("a", "b", "c"))
        self.m.makedirs(self.at("p", "q", "r"))
        self.write(self.at("p", "stay"))
        self.m.removedirs(self.at("p", "q", "r"))
        self.assertEqual(sorted(self.m.listdir(self.base)), ["a", "d", "f", "p"])
        self.assertEqual(self.m.listdir(self.at("p")), ["stay"])

    def test_rename_and_replace(self):
        self.write(self.at("one"), b"1")
        self.write(self.at("two"), b"22")
        self.m.replace(self.at("one"), self.at("two"))
        self.assertEqual(self.m.stat(self.at("two")).st_size, 1)
        self.m.mkdir(self.at("d"))
        self.fails(errno.EISDIR, self.m.rename, self.at("two"), self.at("d"))
        self.fails(errno.EINVAL, self.m.rename, self.at("d"), self.at("d", "below"))
        self.m.renames(self.at("two"), self.at("new", "deep", "name"))
        self.assertTrue(self.m.path.exists(self.at("new", "deep", "name")))

    def test_names_that_end_with_a_slash(self):
        self.write(self.at("file"))
        self.m.symlink("nowhere", self.at("dangling"))
        for path in ("dangling", "file/", "file"):
            self.fails(errno.EEXIST, self.m.makedirs, self.at(path), exist_ok=True)
        self.fails(errno.ENOTDIR, self.m.makedirs, self.at("file", "x"), exist_ok=True)
        self.fails(errno.ENOENT, self.m.makedirs, self.at("dangling", "x"), exist_ok=True)
        self.fails(errno.ENOENT, self.m.makedirs, "")
        self.m.makedirs(self.at("a", "b") + "//")
        self.fails(errno.EEXIST, self.m.makedirs, self.at("a", "b") + "/")
        self.m.makedirs(self.at("c", "."))
        self.m.makedirs(self.at("d", "..", "e"))
        self.m.removedirs(self.at("a", "b") + "/")
        self.fails(errno.ENOTDIR, self.m.renames, self.at("file"), self.at("new/"))
        self.fails(errno.ENOENT, self.m.renames, self.at("none"), self.at("new/"))
        self.fails(errno.ENOTDIR, self.m.renames, self.at("c"), self.at("file", "x"))
        self.fails(errno.ENOENT, self.m.renames, self.at("c"), self.at("f", "g/"))
        self.m.renames(self.at("c"), self.at("f", "g"))
        names = ["d", "dangling", "e", "f", "file"]
        self.assertEqual(sorted(self.m.listdir(self.base)), names)

    def test_links(self):
        self.write(self.at("file"), b"x")
        self.m.link(self.at("file"), self.at("second"))
        self.assertEqual(self.m.stat(self.at("file")).st_nlink, 2)
        self.assertTrue(self.m.path.samefile(self.at("file"), self.at("second")))
        self.m.symlink("file", self.at("soft"))
        self.assertEqual(self.m.readlink(self.at("soft")), "file")
        self.assertEqual(self.m.readlink(os.fsencode(self.at("soft"))), b"file")
        self.assertTrue(stat.S_ISLNK(self.m.lstat(self.at("soft")).st_mode))
        self.assertTrue(stat.S_ISREG(self.m.stat(self.at("soft")).st_mode))
        self.fails(errno.EINVAL, self.m.readlink, self.at("file"))
        self.m.unlink(self.at("file"))
        self.m.remove(self.at("second"))
        self.assertFalse(self.m.path.exists(self.at("soft")))
        self.assertTrue(self.m.path.lexists(self.at("soft")))
        self.m.symlink("loop", self.at("loop"))
        self.fails(errno.ELOOP, self.m.stat, self.at("loop"))

    def test_scandir(self):
        self.m.mkdir(self.at("dir"))
        self.write(self.at("file"), b"abc")
        self.m.symlink("dir", self.at("to-dir"))
        self.m.symlink("nowhere", self.at("broken"))
        with self.m.scandir(self.base) as entries:
            found = {entry.name: entry for entry in entries}
        kinds = {
            name: (e.is_dir(), e.is_dir(follow_symlinks=False), e.is_file(), e.is_symlink())
            for name, e in found.items()
        }
        expected = {
            "dir": (True, True, False, False),
            "file": (False, False, True, False),
            "to-dir": (True, False, False, True),
            "broken": (False, False, False, True),
        }
        self.assertEqual(kinds, expected)
        entry = found["file"]
        self.assertEqual((entry.path, entry.stat().st_size), (self.at("file"), 3))
        self.assertEqual(entry.inode(), self.m.stat(self.at("file")).st_ino)
        self.assertEqual(repr(entry), "<DirEntry 'file'>")
        self.assertRaises(FileNotFoundError, found["broken"].stat)
        self.m.symlink("loop", self.at("loop"))
        for path in (self.base, os.fsencode(self.base)):
            (name,) = [e.name for e in self.m.scandir(path) if e.name in (b"dir", "dir")]
            self.assertEqual(type(name), type(path))
            (loop,) = [e for e in self.m.scandir(path) if e.name in (b"loop", "loop")]
            for call in (loop.is_dir, loop.is_file, loop.stat):
                error = self.fails(errno.ELOOP, call)
                self.assertEqual(error.filename, loop.path)

    def test_walk(self):
        self.m.makedirs(self.at("a", "b"))
        self.m.makedirs(self.at("skipped", "deep"))
        self.write(self.at("a", "f"))
        self.m.symlink(self.at("a"), self.at("link"))

        def walk(**kwargs):
            return [
                (posixpath.relpath(top, self.base), sorted(dirs), sorted(files))
                for top, dirs, files in self.m.walk(self.base, **kwargs)
            ]

        plain = [
            (".", ["a", "link", "skipped"], []),
            ("a", ["b"], ["f"]),
            ("a/b", [], []),
            ("skipped", ["deep"], []),
            ("skipped/deep", [], []),
        ]
        self.assertEqual(sorted(walk()), plain)
        bottom_up = walk(topdown=False)
        self.assertEqual(sorted(bottom_up), plain)
        tops = [top for top, _, _ in bottom_up]
        self.assertLess(tops.index("a/b"), tops.index("a"))
        self.assertEqual(tops[-1], ".")
        followed = [top for top, _, _ in walk(followlinks=True)]
        self.assertIn("link/b", followed)
        seen = []
        for top, dirs, _ in self.m.walk(self.base):
            seen.append(posixpath.basename(top))
            dirs[:] = [name for name in dirs if name != "skipped"]
        self.assertNotIn("deep", seen)
        self.assertEqual(list(self.m.walk(self.at("none"))), [])
        errors = []
        list(self.m.walk(self.at("none"), onerror=errors.append))
        self.assertEqual([error.errno for error in errors], [errno.ENOENT])

    def test_fwalk(self):
        self.m.makedirs(self.at("a", "b"))
        self.write(self.at("a", "f"), b"123")
        self.m.symlink(self.at("a"), self.at("link"))

        def walk(*args, **kwargs):
            found = []
            for top, dirs, files, fd in self.m.fwalk(*args, **kwargs):
                self.assertTrue(stat.S_ISDIR(self.m.stat(fd).st_mode))
                sizes = [self.m.stat(name, dir_fd=fd).st_size for name in files]
                found.append((posixpath.relpath(top, self.base), sorted(dirs), files, sizes))
            return found

        plain = [
            (".", ["a", "link"], [], []),
            ("a", ["b"], ["f"], [3]),
            ("a/b", [], [], []),
        ]
        self.assertEqual(walk(self.base), plain)
        self.assertEqual(walk(self.base, topdown=False), plain[::-1])
        followed = [top for top, *_ in walk(self.base, follow_symlinks=True)]
        self.assertEqual(sorted(followed), [".", "a", "a/b", "link", "link/b"])
        before = self.m.open(self.base, os.O_RDONLY)
        self.addCleanup(self.m.close, before)
        for top, dirs, _, fd in self.m.fwalk("a", dir_fd=before):
            self.assertEqual((top, dirs, fd > before), ("a", ["b"], True))
            dirs.clear()
        self.fails(errno.EBADF, self.m.stat, fd)
        self.fails(errno.ENOENT, lambda: [*self.m.fwalk(self.at("none"))])
        self.assertEqual([*self.m.fwalk(self.at("a", "f"))], [])
        self.assertEqual([*self.m.fwalk(self.at("link"))], [])
        self.m.symlink("nowhere", self.at("dangling"))
        self.fails(errno.ENOENT, lambda: [*self.m.fwalk(self.at("dangling"))])
        self.fails(errno.ENOTDIR, lambda: [*self.m.fwalk(self.at("a", "f", "."))])
        errors = []
        for _, dirs, _, _ in self.m.fwalk(self.at("a"), onerror=errors.append):
            self.m.rmdir(self.at("a", "b")) if dirs else None
        self.assertEqual([error.errno for error in errors], [errno.ENOENT])
        raw = os.fsencode(self.at("a"))
        self.assertEqual([(t, f) for t, _, f, _ in self.m.fwalk(raw)], [(raw, [b"f"])])

    def test_walks_of_deep_trees(self):
        """A tree that is deeper than a path may be long is walked by descriptors."""
        fd = self.m.open(self.base, os.O_RDONLY)
        for _ in range(300):
            self.m.mkdir("d" * 20, dir_fd=fd)
            below = self.m.open("d" * 20, os.O_RDONLY, dir_fd=fd)
            self.m.close(fd)
            fd = below
        self.m.close(fd)
        self.assertEqual(len([*self.m.fwalk(self.base)]), 301)
        errors = []
        self.assertLess(len([*self.m.walk(self.base, onerror=errors.append)]), 301)
        self.assertEqual([error.errno for error in errors], [errno.ENAMETOOLONG])

    # Attributes.

    def test_stat_result(self):
        self.write(self.at("f"), b"12345")
        self.m.utime(self.at("f"), ns=(1_000_000_001, 2_500_000_000))
        found = self.m.stat(self.at("f"))
        self.assertIsInstance(found, os.stat_result)
        self.assertEqual((found.st_size, found[stat.ST_SIZE]), (5, 5))
        self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (1_000_000_001, 2_500_000_000))
        self.assertEqual((found.st_mtime, found[stat.ST_MTIME]), (2.5, 2))
        self.assertEqual(found.st_blksize, 4096)
        self.m.utime(self.at("f"), (1.25, 3))
        found = self.m.stat(self.at("f"))
        self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (1_250_000_000, 3_000_000_000))
        self.m.utime(self.at("f"))
        self.assertGreater(self.m.stat(self.at("f")).st_mtime, 1e9)
        self.assertRaises(ValueError, self.m.utime, self.at("f"), (1, 2), ns=(1, 2))
        self.assertRaises(TypeError, self.m.utime, self.at("f"), (1,))

    def test_chmod_and_access(self):
        self.write(self.at("f"))
        self.m.chmod(self.at("f"), 0o640)
        self.assertEqual(stat.S_IMODE(self.m.stat(self.at("f")).st_mode), 0o640)
        self.assertTrue(self.m.access(self.at("f"), os.R_OK | os.W_OK))
        self.assertTrue(self.m.access(self.at("f"), os.F_OK))
        self.assertFalse(self.m.access(self.at("f"), os.X_OK))
        self.assertFalse(self.m.access(self.at("none"), os.F_OK))
        before = self.m.stat(self.at("f"))
        self.m.chown(self.at("f"), -1, -1)
        after = self.m.stat(self.at("f"))
        self.assertEqual((before.st_uid, before.st_gid), (after.st_uid, after.st_gid))

    def test_umask(self):
        former = self.m.umask(0o077)
        try:
            self.write(self.at("private"))
            self.assertEqual(stat.S_IMODE(self.m.stat(self.at("private")).st_mode), 0o600)
        finally:
            self.assertEqual(self.m.umask(former), 0o077)

    def test_truncate(self):
        self.write(self.at("f"), b"123456")
        self.m.truncate(self.at("f"), 3)
        self.assertEqual(self.m.stat(self.at("f")).st_size, 3)
        self.m.truncate(self.at("f"), 1 << 20)
        self.assertEqual(self.m.path.getsize(self.at("f")), 1 << 20)
        self.fails(errno.EINVAL, self.m.truncate, self.at("f"), -1)

    def test_statvfs(self):
        found = self.m.statvfs(self.base)
        self.assertIsInstance(found, os.statvfs_result)
        self.assertEqual(found.f_namemax, 255)
        self.assertGreater(found.f_blocks, 0)

    def test_xattrs(self):
        self.write(self.at("f"))
        self.m.setxattr(self.at("f"), "user.a", b"1")
        self.m.setxattr(self.at("f"), b"user.b", bytearray(b"2"), os.XATTR_CREATE)
        self.fails(
            errno.EEXIST, self.m.setxattr, self.at("f"), "user.a", b"", os.XATTR_CREATE
        )
        self.assertEqual(sorted(self.m.listxattr(self.at("f"))), ["user.a", "user.b"])
        self.assertEqual(self.m.getxattr(self.at("f"), "user.b"), b"2")
        self.m.removexattr(self.at("f"), "user.a")
        self.fails(errno.ENODATA, self.m.getxattr, self.at("f"), "user.a")

    def test_questions_of_path(self):
        self.write(self.at("f"), b"ab")
        path = self.m.path
        self.assertTrue(path.isfile(self.at("f")) and not path.isdir(self.at("f")))
        self.assertTrue(path.isdir(self.base) and not path.islink(self.base))
        self.assertEqual(path.getmtime(self.at("f")), self.m.stat(self.at("f")).st_mtime)
        self.m.symlink("f", self.at("s"))
        self.m.symlink("s", self.at("t"))
        base = path.realpath(self.base)
        self.assertEqual(path.realpath(self.at("t")), path.join(base, "f"))
        self.assertEqual(path.realpath(self.at("no", "..", "x")), path.join(base, "x"))
        self.m.symlink("/no/where", self.at("u"))
        self.assertEqual(path.realpath(self.at("u", "v")), "/no/where/v")
        self.assertEqual(path.realpath(self.at("f", "x")), path.join(base, "f", "x"))
        self.m.symlink("loop", self.at("loop"))
        self.assertEqual(path.realpath(self.at("loop", "x")), path.join(base, "loop", "x"))
        if sys.version_info >= (3, 10):
            self.fails(errno.ENOENT, path.realpath, self.at("none"), strict=True)
            self.fails(errno.ELOOP, path.realpath, self.at("loop"), strict=True)
        self.assertEqual(path.basename(self.at("f")), "f")

    # Descriptors.

    def test_descriptors(self):
        fd = self.m.open(self.at("f"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o604)
        self.assertEqual(stat.S_IMODE(self.m.stat(self.at("f")).st_mode), 0o604)
        self.assertEqual(self.m.write(fd, b"hello world"), 11)
        self.assertEqual(self.m.lseek(fd, -5, os.SEEK_END), 6)
        self.assertEqual(self.m.read(fd, 100), b"world")
        self.assertEqual(self.m.read(fd, 100), b"")
        self.assertEqual(self.m.pread(fd, 4, 1), b"ello")
        self.assertEqual(self.m.pwrite(fd, memoryview(b"J"), 0), 1)
        self.assertEqual(self.m.lseek(fd, 0, os.SEEK_SET), 0)
        parts = [bytearray(2), bytearray(3)]
        self.assertEqual(self.m.readv(fd, parts), 5)
        self.assertEqual(parts, [b"Je", b"llo"])
        self.m.ftruncate(fd, 5)
        self.assertEqual(self.m.writev(fd, [b"a", b"", b"bc"]), 3)
        self.assertEqual(self.m.fstat(fd).st_size, 8)
        other = self.m.dup(fd)
        self.assertEqual(self.m.lseek(other, 0, os.SEEK_CUR), 8)
        self.m.close(fd)
        self.m.fsync(other)
        self.m.fdatasync(other)
        self.assertEqual(self.m.stat(other).st_size, 8)
        self.m.close(other)
        self.fails(errno.EBADF, self.m.fstat, other)
        self.fails(errno.EEXIST, self.m.open, self.at("f"), os.O_CREAT | os.O_EXCL)
        self.fails(errno.EINVAL, self.m.lseek, self.fd_of("f"), -1, os.SEEK_SET)

    def test_sizes_and_places_that_are_negative(self):
        self.write(self.at("f"), b"hello")
        fd, (reader, _) = self.fd_of("f"), self.m.pipe()
        self.fails(errno.EINVAL, self.m.read, fd, -1)
        self.fails(errno.EINVAL, self.m.read, 987, -1)
        self.fails(errno.EINVAL, self.m.pread, fd, -1, 0)
        self.fails(errno.EINVAL, self.m.pread, fd, 1, -1)
        self.fails(errno.EINVAL, self.m.pwrite, fd, b"x", -1)
        self.fails(errno.EINVAL, self.m.pread, 987, 1, -1)
        self.fails(errno.EINVAL, self.m.preadv, 987, [bytearray(1)], -2)
        self.fails(errno.EINVAL, self.m.pwritev, 987, [b"x"], -2)
        for whence in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END, 5, -1):
            self.fails(errno.EINVAL, self.m.lseek, fd, -1000, whence)
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            self.fails(errno.ENXIO, self.m.lseek, fd, -1000, whence)
        for whence in (os.SEEK_SET, os.SEEK_DATA, 5):
            self.fails(errno.EBADF, self.m.lseek, 987, -1000, whence)
        self.fails(errno.ESPIPE, self.m.lseek, reader, -1000, os.SEEK_SET)

    def test_several_buffers(self):
        fd = self.m.open(self.at("f"), os.O_RDWR | os.O_CREAT)
        self.addCleanup(self.m.close, fd)
        self.assertEqual(self.m.pwritev(fd, [b"one", bytearray(b"two"), b""], 2), 6)
        self.assertEqual(self.m.lseek(fd, 0, os.SEEK_CUR), 0)
        one, two = bytearray(3), bytearray(9)
        self.assertEqual(self.m.preadv(fd, [one, memoryview(two)[1:]], 1), 7)
        self.assertEqual((one, two), (b"\0on", b"\0etwo\0\0\0\0"))
        self.assertEqual(self.m.preadv(fd, [bytearray(3)], 100), 0)
        for call, none in ((self.m.readv, []), (self.m.writev, [])):
            self.assertEqual(call(fd, none), 0)
        self.assertEqual(self.m.pwritev(fd, [], 0), 0)
        self.fails(errno.EINVAL, self.m.preadv, fd, [bytearray(1)], -2)
        self.fails(errno.EINVAL, self.m.pwritev, fd, [b"x"], -2)
        self.fails(errno.EOPNOTSUPP, self.m.preadv, fd, [bytearray(1)], 0, 0x4000_0000)
        self.assertRaises(TypeError, self.m.writev, fd, [b"x", "text"])
        self.assertRaises((TypeError, BufferError), self.m.readv, fd, [bytearray(1), b"fixed"])
        self.assertEqual(self.m.lseek(fd, 0, os.SEEK_CUR), 0)
        self.fails(errno.ESPIPE, self.m.pwritev, self.m.pipe()[1], [b"x"], 0)

    def test_buffers_are_appended_at_once(self):
        """Race: two threads append lines of two buffers each. No line comes between the parts of
        another."""
        fds = [
            self.m.open(self.at("f"), os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(2)
        ]

        def append(fd, letter):
            for _ in range(2000):
                self.m.writev(fd, [letter * 5000, letter * 5000])

        threads = [
            threading.Thread(target=append, args=args) for args in zip(fds, (b"a", b"b"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for fd in fds:
            self.m.close(fd)
        with self.open(self.at("f"), "rb") as file:
            while line := file.read(10_000):
                self.assertIn(line, (b"a" * 10_000, b"b" * 10_000))

    def test_copy_file_range(self):
        self.write(self.at("from"), b"0123456789")
        self.write(self.at("to"), b"abc")
        one, two = self.fd_of("from"), self.fd_of("to")
        self.assertEqual(self.m.copy_file_range(one, two, 4), 4)
        self.assertEqual(self.m.copy_file_range(one, two, 100), 6)
        self.assertEqual(self.m.copy_file_range(one, two, 100), 0)
        self.assertEqual(self.m.pread(two, 20, 0), b"0123456789")
        self.assertEqual(self.m.copy_file_range(one, two, 3, 7, 1), 3)
        self.assertEqual(self.m.pread(two, 20, 0), b"0789456789")
        self.assertEqual(self.m.lseek(two, 0, os.SEEK_CUR), 10)
        self.assertEqual(self.m.copy_file_range(src=one, dst=two, count=1, offset_src=0), 1)
        self.assertRaises(ValueError, self.m.copy_file_range, one, two, -1)
        self.fails(errno.EINVAL, self.m.copy_file_range, one, two, 1, -1000)
        self.fails(errno.EBADF, self.m.copy_file_range, one, 987, 1)
        self.fails(errno.EINVAL, self.m.copy_file_range, one, one, 4, 0, 2)

    def test_posix_fallocate(self):
        self.write(self.at("f"), b"x")
        fd = self.fd_of("f")
        self.m.posix_fallocate(fd, 0, 10_000)
        self.assertEqual((self.m.stat(fd).st_size, self.m.stat(fd).st_blocks > 16), (10_000, True))
        self.assertEqual(self.m.pread(fd, 3, 0), b"x\0\0")
        for offset, length in ((0, 0), (-1, 5), (0, -1)):
            self.fails(errno.EINVAL, self.m.posix_fallocate, fd, offset, length)
        self.fails(errno.EBADF, self.m.posix_fallocate, 987, 0, 1)
        self.fails(errno.ESPIPE, self.m.posix_fallocate, self.m.pipe()[1], 0, 1)

    def test_lockf(self):
        self.write(self.at("f"), b"0123456789")
        fd = self.fd_of("f")
        self.m.lseek(fd, 4, os.SEEK_SET)
        for command in (os.F_LOCK, os.F_TLOCK, os.F_TEST, os.F_ULOCK, os.F_TEST):
            for length in (0, 3, -4):
                self.m.lockf(fd, command, length)
        self.fails(errno.EINVAL, self.m.lockf, fd, os.F_LOCK, -5)
        self.fails(errno.EINVAL, self.m.lockf, fd, 99, 0)
        self.fails(errno.EINVAL, self.m.lockf, 987, 99, 0)
        self.fails(errno.EBADF, self.m.lockf, 987, os.F_LOCK, 0)
        read_only = self.m.open(self.at("f"), os.O_RDONLY)
        self.addCleanup(self.m.close, read_only)
        self.fails(errno.EBADF, self.m.lockf, read_only, os.F_LOCK, 0)

    def fd_of(self, name):
        fd = self.m.open(self.at(name), os.O_RDWR)
        self.addCleanup(self.m.close, fd)
        return fd

    def test_access_modes(self):
        self.write(self.at("f"), b"x")
        fd = self.m.open(self.at("f"), os.O_RDONLY)
        self.fails(errno.EBADF, self.m.write, fd, b"y")
        self.m.close(fd)
        fd = self.m.open(self.at("f"), flags=os.O_WRONLY | os.O_APPEND)
        self.fails(errno.EBADF, self.m.read, fd, 1)
        self.m.write(fd, b"y")
        self.m.close(fd)
        self.assertEqual(self.m.stat(self.at("f")).st_size, 2)
        fd = self.m.open(self.base, os.O_RDONLY)
        self.fails(errno.EISDIR, self.m.read, fd, 1)
        self.m.close(fd)

    def outcome(self, call, *args, **kwargs):
        """Returns what a call does: the class and number of its error, or `None`."""
        try:
            call(*args, **kwargs)
        except OSError as error:
            return errno.errorcode[error.errno]
        except Exception as error:
            return type(error)
        return None

    def test_descriptors_that_only_name_a_file(self):
        """A descriptor of `O_PATH` serves to look and to start from, not to change the file."""
        self.write(self.at("f"), b"hello")
        self.m.mkdir(self.at("d"))
        for name, listed in (("f", "ENOTDIR"), ("d", "EBADF")):
            fd = self.m.open(self.at(name), os.O_PATH)
            self.addCleanup(self.m.close, fd)
            refused = {
                "fchmod": (self.m.fchmod, fd, 0o600),
                "chmod": (self.m.chmod, fd, 0o600),
                "fchown": (self.m.fchown, fd, -1, -1),
                "chown": (self.m.chown, fd, -1, -1),
                "utime": (self.m.utime, fd, (1, 1)),
                "setxattr": (self.m.setxattr, fd, "user.a", b""),
                "listxattr": (self.m.listxattr, fd),
                "fsync": (self.m.fsync, fd),
                "ftruncate": (self.m.ftruncate, fd, 3),
                "read": (self.m.read, fd, 1),
                "readv": (self.m.readv, fd, [bytearray(1)]),
                "preadv": (self.m.preadv, fd, [bytearray(1)], 0),
                "pwritev": (self.m.pwritev, fd, [b"x"], 0),
                "lockf": (self.m.lockf, fd, os.F_LOCK, 0),
                "posix_fallocate": (self.m.posix_fallocate, fd, 0, 1),
                "writev": (self.m.writev, fd, [b""]),
                "lseek": (self.m.lseek, fd, 0, os.SEEK_SET),
            }
            found = {call: self.outcome(*args) for call, args in refused.items()}
            self.assertEqual(found, dict.fromkeys(refused, "EBADF"), name)
            self.assertIsNone(self.fails(errno.EBADF, self.m.fchmod, fd, 0).filename)
            self.assertEqual(self.fails(errno.EBADF, self.m.chmod, fd, 0).filename, fd)
            self.assertEqual(self.outcome(self.m.listdir, fd), listed)
            self.assertEqual(self.outcome(lambda: [*self.m.scandir(fd)]), listed)
            self.assertEqual(self.m.stat(fd).st_ino, self.m.stat(self.at(name)).st_ino)
            self.m.statvfs(fd)
        self.assertNotEqual(self.m.stat(self.at("f")).st_mtime, 1)
        self.m.close(self.m.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        self.m.chmod("x", 0o600, dir_fd=fd)

    def test_relative_to_a_descriptor(self):
        fd = self.m.open(self.base, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(self.m.close, fd)
        self.m.mkdir("d", dir_fd=fd)
        self.m.close(self.m.open("d/f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        self.m.rename("d/f", "g", src_dir_fd=fd, dst_dir_fd=fd)
        self.m.symlink("g", "s", dir_fd=fd)
        self.m.link("g", "h", src_dir_fd=fd, dst_dir_fd=fd)
        self.assertEqual(self.m.readlink("s", dir_fd=fd), "g")
        self.assertEqual(self.m.stat("s", dir_fd=fd).st_nlink, 2)
        self.m.unlink("h", dir_fd=fd)
        self.m.chmod("g", 0o600, dir_fd=fd)
        self.assertTrue(self.m.access("g", os.R_OK, dir_fd=fd))
        self.m.rmdir("d", dir_fd=fd)
        self.assertEqual(sorted(self.m.listdir(fd)), ["g", "s"])

    def test_sparse_files(self):
        fd = self.m.open(self.at("f"), os.O_RDWR | os.O_CREAT)
        self.addCleanup(self.m.close, fd)
        self.m.pwrite(fd, b"x", 1 << 20)
        self.assertEqual(self.m.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
        self.assertEqual(self.m.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + 1)
        self.assertEqual(self.m.pread(fd, 5000, 0), bytes(5000))
        self.assertEqual(len(self.m.pread(fd, 1 << 30, 0)), (1 << 20) + 1)

    def test_pipes(self):
        reader, writer = self.m.pipe()
        self.m.write(writer, b"through")
        self.assertEqual(self.m.read(reader, 100), b"through")
        self.m.close(writer)
        self.assertEqual(self.m.read(reader, 100), b"")
        self.m.close(reader)

    def test_writes_to_pipes_are_whole(self):
        """More than a pipe has room for waits for the reader; only a descriptor that does not wait
        writes a part."""
        data = os.urandom(1 << 20)
        for write in (
            lambda fd: self.m.write(fd, data),
            lambda fd: self.m.writev(fd, [data[:1000], data[1000:]]),
        ):
            reader, writer = self.m.pipe()
            found = []

            def read():
                while part := self.m.read(reader, 1 << 16):
                    found.append(part)

            thread = threading.Thread(target=read)
            thread.start()
            try:
                self.assertEqual(write(writer), 1 << 20)
            finally:
                self.m.close(writer)
                thread.join()
                self.m.close(reader)
            self.assertEqual(b"".join(found), data)
        self.m.mkfifo(self.at("fifo"))
        reader = self.m.open(self.at("fifo"), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(self.m.close, reader)
        writer = self.m.open(self.at("fifo"), os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(self.m.close, writer)
        self.assertLess(self.m.write(writer, data), 1 << 20)
        self.fails(errno.EAGAIN, self.m.write, writer, b"x")

    def test_fifos(self):
        self.m.mkfifo(self.at("fifo"))
        self.assertTrue(stat.S_ISFIFO(self.m.stat(self.at("fifo")).st_mode))
        fd = self.m.open(self.at("fifo"), os.O_RDONLY | os.O_NONBLOCK)
        self.fails(errno.EAGAIN, self.m.read, fd, 1) if self.writer() else None
        self.m.close(fd)
        self.fails(errno.ENXIO, self.m.open, self.at("fifo"), os.O_WRONLY | os.O_NONBLOCK)

    def writer(self):
        fd = self.m.open(self.at("fifo"), os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(self.m.close, fd)
        return True

    # Files.

    def test_files_of_bytes(self):
        with self.open(self.at("f"), "wb") as file:
            self.assertIsInstance(file, io.BufferedWriter)
            file.write(b"one\ntwo\n")
        with self.open(self.at("f"), "rb") as file:
            self.assertIsInstance(file, io.BufferedReader)
            self.assertEqual(list(file), [b"one\n", b"two\n"])
        with self.open(self.at("f"), "r+b") as file:
            self.assertIsInstance(file, io.BufferedRandom)
            file.seek(4)
            file.write(b"TWO")
            file.seek(0)
            self.assertEqual(file.read(), b"one\nTWO\n")
            file.truncate(3)
        with self.open(self.at("f"), "ab") as file:
            self.assertEqual(file.tell(), 3)
            file.write(b"!")
        with self.open(self.at("f"), "rb", buffering=0) as file:
            self.assertIsInstance(file, io.RawIOBase)
            self.assertEqual((file.mode, file.name), ("rb", self.at("f")))
            self.assertEqual(file.read(), b"one!")
        self.assertRaises(ValueError, file.read)
        self.assertRaises(FileExistsError, self.open, self.at("f"), "xb")

    def test_raw_files(self):
        with self.open(self.at("f"), "w+b", buffering=0) as file:
            self.assertEqual(file.mode, "rb+")
            self.assertEqual(file.write(bytearray(b"a\nbc\n\nd")), 7)
            self.assertEqual((file.seek(0), file.readline(), file.readline(2)), (0, b"a\n", b"bc"))
            self.assertEqual(file.tell(), 4)
            self.assertEqual(file.readlines(), [b"\n", b"\n", b"d"])
            room = bytearray(4)
            file.seek(-3, io.SEEK_END)
            self.assertEqual((file.readinto(memoryview(room)[1:]), room), (3, b"\0\n\nd"[:4]))
            self.assertEqual(file.readinto(bytearray()), 0)
            self.assertRaises(TypeError, file.readinto, b"fixed")
            file.writelines([b"e", b"f"])
            file.seek(0)
            self.assertEqual([*file], [b"a\n", b"bc\n", b"\n", b"def"])
            self.assertTrue(file.readable() and file.writable() and file.seekable())
            self.assertFalse(file.isatty())
            file.seek(1)
            self.assertEqual((file.truncate(), self.m.stat(self.at("f")).st_size), (1, 1))
        self.assertTrue(file.closed)
        for call in (file.readable, file.flush, file.tell, file.fileno, file.__enter__):
            self.assertRaises(ValueError, call)
        file.close()
        with self.open(self.at("f"), "rb", buffering=0) as file:
            self.assertRaises(io.UnsupportedOperation, file.write, b"")
        with self.open(self.at("f"), "wb", buffering=0) as file:
            self.assertRaises(io.UnsupportedOperation, file.read)

    def test_files_of_text(self):
        with self.open(self.at("t"), "w", encoding="utf-16", newline="\r\n") as file:
            self.assertIsInstance(file, io.TextIOWrapper)
            self.assertEqual(file.mode, "w")
            file.write("žluť\nkůň\n")
        with self.open(self.at("t"), encoding="utf-16") as file:
            self.assertEqual(file.readlines(), ["žluť\n", "kůň\n"])
        with self.open(self.at("t"), "r+", encoding="utf-16", newline="") as file:
            self.assertTrue(file.read().endswith("kůň\r\n"))

    def test_invalid_modes(self):
        for mode in ("", "rw", "z", "rr", "rbt", "b"):
            self.assertRaises(ValueError, self.open, self.at("f"), mode)
        self.assertRaises(ValueError, self.open, self.at("f"), "w", 0)
        self.assertRaises(ValueError, self.open, self.at("f"), "rb", encoding="utf-8")
        self.assertRaises(TypeError, self.open, self.at("f"), None)
        self.assertRaises(FileNotFoundError, self.open, self.at("none"))
        self.assertRaises(IsADirectoryError, self.open, self.base)

    def test_large_files(self):
        data = os.urandom(3 << 20)
        with self.open(self.at("big"), "wb") as file:
            file.write(data)
        with self.open(self.at("big"), "rb") as file:
            self.assertEqual(file.read(10), data[:10])
            self.assertEqual(file.read(), data[10:])
            file.seek(1 << 20)
            into = bytearray(1 << 20)
            self.assertEqual(file.readinto(into), 1 << 20)
            self.assertEqual(into, data[1 << 20 : 2 << 20])


class OnHost(Calls, unittest.TestCase):
    m = os
    open = staticmethod(io.open)

    def setUp(self):
        self.base = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.base)


class InMemory(Calls, unittest.TestCase):
    def setUp(self):
        self.m = vfscale.memory(size=64 << 20).task()
        self.open, self.base = self.m.open, "/base"
        self.m.mkdir(self.base)
        self.addCleanup(self.m.end)


class OnVolume(Calls, unittest.TestCase):
    def setUp(self):
        host = tempfile.TemporaryDirectory()
        self.addCleanup(host.cleanup)
        volume = vfscale.open_volume(os.path.join(host.name, "disk.vfs"), create=64 << 20)
        self.addCleanup(volume.close)
        self.m = volume.task()
        self.open, self.base = self.m.open, "/base"
        self.m.mkdir(self.base)


if __name__ == "__main__":
    unittest.main()
