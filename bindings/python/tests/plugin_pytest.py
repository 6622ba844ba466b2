"""The fixture `vfs`, as pytest finds it in the installed package."""

import os
import textwrap
from pathlib import Path

import pytest

from vfscale import patch

pytest_plugins = ["pytester"]


def test_files_are_in_the_tree(vfs):
    Path("/etc").mkdir()
    Path("/etc/app.conf").write_text("a = 1")
    assert vfs.read_text("/etc/app.conf") == "a = 1"
    assert os.listdir("/etc") == ["app.conf"]


def test_the_lines_of_the_manual(vfs):
    with patch.paused():
        manual = Path(__file__).parents[3] / "docs/PYTHON.md"
        (_, lines) = manual.read_text(encoding="utf-8").split("```python\ndef test_report(vfs):\n")

    def write_report(path):
        os.makedirs(os.path.dirname(path))
        Path(path).write_text("done")

    body = textwrap.dedent(lines.split("```")[0])
    exec(body, {"vfs": vfs, "write_report": write_report})


def test_the_next_test_has_a_new_one(vfs):
    assert not os.path.exists("/etc")


def test_without_the_fixture_files_are_the_hosts():
    assert os.path.exists("/etc/passwd")


def test_permissions_are_checked(vfs):
    vfs.write_text("/secret", "x")
    vfs.chmod("/secret", 0)
    vfs.chown("/secret", 0, 0)
    vfs.set_credentials(1000, 1000)
    with pytest.raises(PermissionError) as refused:
        open("/secret")
    assert refused.value.filename == "/secret" and os.getuid() == 1000


def test_failures_show_their_source(pytester):
    pytester.makepyfile("def test_it(vfs):\n    open('/none')  # the line\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*# the line*", "*FileNotFoundError*'/none'*"])
