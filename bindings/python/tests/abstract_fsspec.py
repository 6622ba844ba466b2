"""fsspec's own tests of file systems, for pytest: `pytest bindings/python/tests/abstract_fsspec.py`."""

import posixpath

import pytest
from fsspec.tests import abstract

import vfscale
from vfscale.fsspec import VfscaleFileSystem, VfscaleVolumeFileSystem


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs_join(self):
        return posixpath.join


class InMemory(Fixtures):
    @pytest.fixture
    def fs(self):
        yield VfscaleFileSystem(task=vfscale.memory(size=64 << 20).task())

    @pytest.fixture
    def fs_path(self):
        return "/base"


class OnVolume(Fixtures):
    @pytest.fixture
    def fs(self, tmpdir):
        fs = VfscaleVolumeFileSystem(str(tmpdir.join("disk.vfs")), create=64 << 20)
        yield fs
        fs.close()

    @pytest.fixture
    def fs_path(self):
        return "/base"

    @pytest.fixture
    def local_path(self, tmpdir):
        return tmpdir.mkdir("local")


class TestCopyInMemory(abstract.AbstractCopyTests, InMemory):
    pass


class TestGetInMemory(abstract.AbstractGetTests, InMemory):
    pass


class TestPutInMemory(abstract.AbstractPutTests, InMemory):
    pass


class TestOpenInMemory(abstract.AbstractOpenTests, InMemory):
    pass


class TestPipeInMemory(abstract.AbstractPipeTests, InMemory):
    pass


class TestCopyOnVolume(abstract.AbstractCopyTests, OnVolume):
    pass


class TestGetOnVolume(abstract.AbstractGetTests, OnVolume):
    pass


class TestPutOnVolume(abstract.AbstractPutTests, OnVolume):
    pass


class TestOpenOnVolume(abstract.AbstractOpenTests, OnVolume):
    pass


class TestPipeOnVolume(abstract.AbstractPipeTests, OnVolume):
    pass
