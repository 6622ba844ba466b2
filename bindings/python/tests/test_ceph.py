"""Tests of volumes on images of Ceph RBD.

VFSCALE_CEPH_CONF names the configuration of a cluster that `scripts/ceph up` has made: `scripts/test
ceph` does both. Without it the tests are skipped.
"""

import errno
import os
import subprocess
import time
import unittest

import vfscale

CONF = os.environ.get("VFSCALE_CEPH_CONF")


class WithoutACluster(unittest.TestCase):
    def test_an_image_in_a_file_is_not_taken_over(self):
        with self.assertRaises(OSError) as raised:
            vfscale.open_volume("/none/disk.vfs", take_over=True)
        self.assertEqual(raised.exception.errno, errno.EOPNOTSUPP)

    def test_wrong_options_are_named(self):
        self.assertRaises(ValueError, vfscale.open_volume, "rbd:a/b", patience=-1)
        with self.assertRaises(OSError) as raised:
            vfscale.open_volume("rbd:a", ceph_conf="/none/ceph.conf")
        self.assertIn("rbd:POOL", str(raised.exception))


@unittest.skipUnless(CONF, "needs a Ceph cluster: scripts/test ceph")
class OnCeph(unittest.TestCase):
    def setUp(self):
        self.image = f"rbd:rbd/from-python-{os.getpid()}"
        self.options = {"ceph_conf": CONF, "ceph_id": "admin", "patience": 60}
        self.addCleanup(self.remove)

    def rbd(self, *arguments):
        subprocess.run(["rbd", "--conf", CONF, *arguments], check=True, capture_output=True)

    def remove(self):
        # A client that was refused may still watch the image for a moment.
        end = time.monotonic() + 30
        while True:
            try:
                return self.rbd("rm", "--no-progress", self.image[4:])
            except subprocess.CalledProcessError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.5)

    def open(self, **more):
        return vfscale.open_volume(self.image, **self.options, **more)

    def test_the_second_opener_takes_over(self):
        old = self.open(create=64 << 20)
        self.assertTrue(old.is_new)
        task = old.task()
        task.replace_bytes("/state", b"kept", durable=True)
        old.prove()
        with self.assertRaises(OSError) as raised:
            self.open()
        self.assertEqual(raised.exception.errno, errno.EBUSY)
        self.assertIn(str(os.getpid()), str(raised.exception))

        with self.open(take_over=True) as young:
            self.assertFalse(young.is_new)
            with self.assertRaises(OSError) as raised:
                old.prove()
            self.assertEqual(raised.exception.errno, errno.ESHUTDOWN)
            self.assertEqual(raised.exception.filename, self.image)
            with self.assertRaises(OSError) as raised:
                task.replace_bytes("/state", b"lost", durable=True)
            self.assertEqual(raised.exception.errno, errno.EIO)
            self.assertRaises(OSError, old.close)
            young.prove()
            self.assertEqual(young.task().read_bytes("/state"), b"kept")

    def test_a_snapshot_is_read_beside_the_writer(self):
        with self.open(create=64 << 20) as volume:
            volume.task().write_bytes("/f", b"then")
            volume.sync()
            self.rbd("snap", "create", "--no-progress", f"{self.image[4:]}@then")
            self.addCleanup(self.rbd, "snap", "rm", "--no-progress", f"{self.image[4:]}@then")
            volume.task().write_bytes("/f", b"now")
            volume.sync()
            then = f"{self.image}@then"
            with vfscale.open_volume(then, read_only=True, **self.options) as snapshot:
                self.assertEqual(snapshot.task().read_bytes("/f"), b"then")

    def test_what_is_missing_is_named(self):
        self.open(create=64 << 20).close()
        self.assertRaises(FileNotFoundError, vfscale.open_volume, "rbd:rbd/none", ceph_conf=CONF)
        with self.assertRaises(OSError) as raised:
            vfscale.open_volume(self.image, ceph_conf=CONF, ceph_id="nobody")
        self.assertIn("no such user", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
