"""Calls of this process that are led to a tree."""

import errno
import glob
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from os import stat as imported_stat
from pathlib import Path

from vfscale import patch


def with_default(path, remove=os.unlink):
    remove(path)


@unittest.skipIf(sys.version_info < (3, 11), "older modules keep functions of os")
class PatchTest(unittest.TestCase):
    def setUp(self):
        self.task = self.enterContext(patch.new_task())
        self.enterContext(patch.patched(self.task))

    def test_names_of_os_and_what_is_made_of_them(self):
        Path("/a/b").mkdir(parents=True)
        Path("/a/b/c.txt").write_text("text")
        self.assertEqual(self.task.read_text("/a/b/c.txt"), "text")
        self.assertEqual(imported_stat("/a/b/c.txt").st_size, 4)
        self.assertEqual(glob.glob("/a/**/*.txt", recursive=True), ["/a/b/c.txt"])
        shutil.copytree("/a", "/z")
        shutil.copy2("/a/b/c.txt", "/y")
        self.assertEqual(os.path.getmtime("/y"), os.path.getmtime("/a/b/c.txt"))
        shutil.move("/z", "/w")
        shutil.rmtree("/a")
        names = sorted(path.name for path in Path("/w").rglob("*"))
        self.assertEqual(names, ["b", "c.txt"])
        with os.scandir("/w") as entries:
            self.assertEqual([os.fspath(entry) for entry in entries], ["/w/b"])
        with_default("/y")
        self.assertFalse(os.path.exists("/y"))
        os.chdir("/w")
        self.assertEqual((os.getcwd(), os.path.abspath("b")), ("/w", "/w/b"))
        self.assertFalse(os.path.exists("/etc/passwd"))

    def test_files(self):
        with open("/f", "x") as file:
            file.write("12")
            file.flush()
            os.fsync(file.fileno())
            self.assertEqual(os.fstat(file.fileno()).st_size, 2)
        with open("/f", "a+b") as file:
            self.assertEqual(file.tell(), 2)
            file.write(b"3")
            file.seek(0)
            self.assertEqual(file.read(), b"123")
        with io.open("/f", "rb", buffering=0) as file:
            self.assertEqual((file.name, file.mode, file.readall()), ("/f", "rb", b"123"))
        fd = os.open("/f", os.O_RDWR)
        with os.fdopen(os.dup(fd), "r+") as file:
            file.truncate(1)
        with open(fd, closefd=False) as file:
            self.assertEqual(file.read(), "1")
        os.close(fd)
        with self.assertRaises(OSError) as closed:
            os.fstat(fd)
        self.assertEqual(closed.exception.errno, errno.EBADF)
        for path, error in (("/none", FileNotFoundError), ("/", IsADirectoryError)):
            with self.assertRaises(error) as refused:
                open(path)
            self.assertEqual(refused.exception.filename, path)
        with self.assertWarns(ResourceWarning):
            open("/f").read()

    def test_temporary_files(self):
        with tempfile.NamedTemporaryFile("w") as file:
            self.assertTrue(self.task.exists(file.name))
        self.assertFalse(self.task.exists(file.name))
        with tempfile.TemporaryFile() as file:
            file.write(b"abc")
            file.seek(0)
            self.assertEqual(file.read(), b"abc")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "f").touch()
        self.assertEqual(self.task.listdir(tempfile.gettempdir()), [])

    def test_processes_and_devices_are_the_hosts(self):
        command = [sys.executable, "-c", "print(1)"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        self.assertEqual(done.stdout, b"1\n")
        with open("/dev/null", "w") as null:
            self.assertLess(null.fileno(), patch.BASE)

    def test_one_tree_at_a_time_and_pauses(self):
        with self.assertRaises(RuntimeError), patch.patched(self.task):
            pass
        with patch.paused():
            self.assertTrue(os.path.exists("/etc/passwd"))
        self.assertFalse(os.path.exists("/etc/passwd"))


class HostTest(unittest.TestCase):
    def test_nothing_is_left(self):
        real = (os.stat, open, io.open, shutil.os.listdir, with_default.__defaults__)
        with patch.new_task() as task, patch.patched(task):
            self.assertIsNot(os.stat, real[0])
        now = (os.stat, open, io.open, shutil.os.listdir, with_default.__defaults__)
        self.assertEqual(now, real)


if __name__ == "__main__":
    unittest.main()
