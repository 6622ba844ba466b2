"""The conftest.py of pyfakefs's own tests, when they run against a tree.

They have a variant for the file system of the host ("Real"), which is a tree here.
"""

import builtins
import os

import pytest
from pyfakefs.tests import test_utils

from vfscale import patch

#: What differs, and why.
DIFFERS = {
    "test_open_pipe_with_existing_fd": "descriptors of a tree have numbers above those of the host",
    "test_byte_contents_open_code": "io.open_code reads modules, which are the host's",
    "test_add_existing_real_directory_with_pathlib_path": "reads the host's files",
    "test_add_existing_real_file_with_pathlib_path": "reads the host's files",
}
#: These fail on the host as well, if they are root's.
NOT_AS_ROOT = {
    "test_catch_permission_error",
    "test_permission_error_message",
    "test_rmtree_without_permission_for_a_dir_in_posix",
    "test_raises_if_dest_dir_is_not_writable_under_posix",
    "test_raises_if_dest_exists_and_is_not_writable",
    "test_raises_if_src_not_readable",
}


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.name
        if name in DIFFERS:
            item.add_marker(pytest.mark.xfail(reason=DIFFERS[name], strict=True))
        elif name in NOT_AS_ROOT and os.geteuid() == 0:
            item.add_marker(pytest.mark.skip(reason="root has all rights"))


@pytest.fixture(autouse=True, scope="session")
def in_a_tree():
    here = os.getcwd()
    with patch.new_task() as task:
        task.makedirs(here)
        task.chdir(here)
        with patch.patched(task):
            yield


class LateOpen:
    """The function `open`, which tests keep before the tree is there."""

    def __call__(self, *args, **kwargs):
        return builtins.open(*args, **kwargs)


initialize = test_utils.RealFsTestMixin.__init__


def with_late_open(self):
    initialize(self)
    self.open = LateOpen()


test_utils.RealFsTestMixin.__init__ = with_late_open
