"""The fixture `vfs` of pytest: a test whose files are in a tree."""

import sys

import pytest

from . import patch


@pytest.fixture
def vfs():
    """Leads the calls of a test on files to a new tree in memory, of which this is the task.

    What the test, and the code under it, do with `os`, `open`, `pathlib`, `shutil`, `glob` and
    `tempfile` is done there, as the user of this process and with the errors of Linux. The tree has a
    directory for temporary files and nothing else; `vfs.import_tree` copies files of the host into it.
    """
    if sys.version_info < (3, 11):
        pytest.fail("the fixture `vfs` needs Python 3.11: older modules keep functions of `os`")
    with patch.new_task() as task, patch.patched(task):
        yield task


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    # Reads sources.
    with patch.paused():
        return (yield)
