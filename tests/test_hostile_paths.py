"""Pipes, devices, broken links, bombs, full disks: every reader and writer refuses them, at once and by name."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import fuzzing
import hostile_paths
from manyclass.io import folder, read
from manyclass.io.tensors import FileError
from manyclass.runtime.files import atomic_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="makes pipes, devices and limits as Linux has them")


def cases(group, tmp_path, *before):
    """The cases of a group, in a process of their own: one that waits for a pipe ends with a traceback."""
    found = subprocess.run(
        [*before, sys.executable, hostile_paths.__file__, group, os.fspath(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stdout[-300:] + found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_every_reader_refuses_what_is_not_a_file(tmp_path):
    found = cases("nodes", tmp_path)
    assert len(found) > 8 * len(fuzzing.TARGETS)
    for case in found:
        name, _, kind = case["case"].partition(": ")
        # No checkpoint yet, or a folder that it can be written in.
        fresh = name.startswith("checkpoint") and kind in ("loop", "below a file", "folder")
        assert case["error"] in (("none", "own", "os") if fresh else ("own", "os")), case
        assert os.fspath(tmp_path) in case["text"] or case["error"] == "none", case


def test_bombs_are_refused_before_they_fill_memory(tmp_path):
    found = cases("bombs", tmp_path)
    assert len(found) >= 23
    for case in found:
        assert case["error"] == "own", case
        assert os.fspath(tmp_path) in case["text"], case
        assert "times its size" in case["text"] or "in memory" in case["text"] or "too large" in case["text"], case
        assert case["bytes"] < 64 << 20, case
        assert case["seconds"] < 5, case


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path):
    found = cases("writes", tmp_path)
    for case in found:
        if "kept" in case:
            assert all(case["kept"].values()), case
        else:
            assert case["error"] in ("own", "os"), case
            assert os.fspath(tmp_path) in case["text"], case
    assert sum("kept" in case for case in found) == 13


def test_a_file_system_without_space(tmp_path):
    alone = ("unshare", "--user", "--map-root-user", "--mount")
    try:
        subprocess.run([*alone, "mount", "-t", "tmpfs", "none", tmp_path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system in a namespace")
    found = cases("full", tmp_path, *alone)
    for case in found:
        if "kept" in case:
            assert case["kept"], case
        else:
            assert case["error"] == "os", case
            assert re.search(
                r"cannot write .*/disk/it\..*: free space there, or write to another disk", case["text"]
            ), case
    assert len(found) == 2 * 17
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize("name", [name for name, target in fuzzing.TARGETS.items() if "ckpt" not in target.suffix])
def test_a_link_is_read_as_what_it_leads_to(name, tmp_path):
    target = fuzzing.TARGETS[name]
    (tmp_path / "seeds").mkdir()
    path = fuzzing.put(target.seeds(tmp_path / "seeds")[0], tmp_path / f"it{target.suffix}")
    link = tmp_path / f"link{target.suffix}"
    link.symlink_to(path)
    assert fuzzing.fault(target, link, 0) is None
    target.use(link, 0)


def test_a_link_is_replaced_and_what_it_leads_to_is_left(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    with atomic_path(tmp_path / "link") as draft:
        draft.write_text("new")
    assert (tmp_path / "old").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["store", "sharded"])
@pytest.mark.parametrize("entry", ["../outside", "/etc/passwd", "..", "a\\b", "sub/file"])
def test_a_manifest_names_files_of_its_folder_alone(name, entry, tmp_path):
    """With checksums that are right, as a stranger would write them."""
    target = fuzzing.TARGETS[name]
    (tmp_path / "seeds").mkdir()
    path = fuzzing.put(target.seeds(tmp_path / "seeds")[0], tmp_path / f"it{target.suffix}")
    manifest = json.loads((path / folder.MANIFEST).read_bytes())
    files = list(folder._files(manifest))
    text = json.dumps({key: value for key, value in manifest.items() if key != "crc32"}, indent=1)
    text = text.replace(json.dumps(files[0].file), json.dumps(entry))
    body = text.removesuffix("\n}").encode("ascii")
    (path / folder.MANIFEST).write_bytes(body + folder._end(body))
    with pytest.raises(FileError, match="names the file"):
        target.use(path, 0)


def test_an_archive_is_never_unpacked_to_disk(tmp_path):
    (tmp_path / "inside").mkdir()
    path = tmp_path / "inside" / "rows.npz"
    sp.save_npz(path, sp.eye(2, format="csr"))
    member = io.BytesIO()
    np.save(member, np.ones(2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../escaped.npy", member.getvalue())
        archive.writestr("/tmp/escaped.npy", member.getvalue())
    assert read(path).X.shape == (2, 2)
    assert [entry.name for entry in tmp_path.rglob("*")] == ["inside", "rows.npz"]
    assert not Path("/tmp/escaped.npy").exists()
