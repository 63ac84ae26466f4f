"""Files of earlier versions are read, with the answers of then; no changed byte of any kind of file goes unnoticed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from golden import KINDS, answers
from manyclass._version import __version__
from manyclass.cli.main import main
from manyclass.io import verify
from manyclass.io.tensors import FileError
from tensors import parts

ROOT = Path(__file__).parent / "golden"
FILES = sorted(path for path in ROOT.glob("*/*") if path.name != "answers.json")
NEWEST = max(ROOT.iterdir())


def compare(found, expected):
    """Numbers to rounding, everything else exactly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            compare(found[name], value)
    elif isinstance(expected, list) and np.asarray(expected).dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    else:
        assert found == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_of_earlier_versions_are_read(path):
    if path.suffix == ".checkpoint" and not __version__.startswith(f"{path.parent.name}."):
        pytest.skip("a fit is resumed by the versions of the same minor number")
    expected = json.loads((path.parent / "answers.json").read_text(encoding="utf-8"))
    verify(path)
    compare(answers(path.parent, path.name), expected[path.name])


def test_there_is_one_of_every_kind():
    assert {path.name for path in NEWEST.iterdir()} == {*KINDS, "answers.json"}
    expected = json.loads((NEWEST / "answers.json").read_text(encoding="utf-8"))
    for name in KINDS:
        scores = expected[name].get("scores")
        assert scores is None or len(np.unique(scores)) > 5, f"{name} could hardly be told from another"


@pytest.mark.parametrize("name", KINDS)
def test_no_changed_byte_goes_unnoticed(name, tmp_path):
    """Any byte of any file, by any change: by `verify`, and where a file of this size is opened."""
    path = tmp_path / name
    if name.endswith(".checkpoint"):
        shutil.copytree(NEWEST / "sparse.store", tmp_path / "sparse.store")
    whole = NEWEST / name
    (shutil.copytree if whole.is_dir() else shutil.copyfile)(whole, path)
    rng = np.random.default_rng(0)
    files = [file for file in path.iterdir() if file.suffix != ".bin"] if path.is_dir() else [path]
    # To resume a fit takes longer than to read a model.
    tries, opened = 300, 15 if name.endswith(".checkpoint") else 100
    for number in range(tries):
        file = files[number % len(files)]
        content = bytearray(file.read_bytes())
        place, flip = int(rng.integers(len(content))), int(rng.integers(1, 256))
        content[place] ^= flip
        file.write_bytes(content)
        with pytest.raises(FileError) as said:
            verify(path)
        assert file.name in str(said.value) or path.name in str(said.value)
        if number < opened:
            with pytest.raises(ValueError, match=name) as said:
                KINDS[name].ask(path)
            assert type(said.value).__module__.startswith("manyclass") or "cannot be read" in str(said.value)
        content[place] ^= flip
        file.write_bytes(content)
    verify(path)


@pytest.mark.parametrize("name", KINDS)
def test_info_verify_names_the_file_the_array_and_the_remedy(capsys, name, tmp_path):
    path = tmp_path / name
    whole = NEWEST / name
    (shutil.copytree if whole.is_dir() else shutil.copyfile)(whole, path)
    assert main(["info", str(path), "--verify"]) == 0
    assert "every checksum as it was written" in capsys.readouterr().out
    file = max(path.glob("*.safetensors")) if path.is_dir() else path
    header, _, body = parts(file)
    del header["__metadata__"]
    array = next(array for array, entry in header.items() if entry["data_offsets"][1] > entry["data_offsets"][0])
    content = bytearray(file.read_bytes())
    content[len(content) - len(body) + header[array]["data_offsets"][0]] ^= 4
    file.write_bytes(content)
    assert main(["info", str(path), "--verify"]) == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line == (
        f"manyclass: error: {file}: the file is damaged (the checksum of {array} differs): "
        "copy it again from where it was written, or write it again"
    )
    assert said.out == ""


def test_every_promise_names_a_test_that_there_is():
    text = (ROOT.parents[1] / "docs" / "promise.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 15
    for file, function in named:
        assert f"def {function}" in (ROOT.parent / file).read_text(encoding="utf-8"), (file, function)


def test_verify_is_for_files_with_checksums(capsys, tmp_path):
    (tmp_path / "data.svm").write_text("1 1:2\n")
    assert main(["info", str(tmp_path / "data.svm"), "--verify"]) == 2
    assert "--verify is for models, indexes, row stores and checkpoints" in capsys.readouterr().err
    assert main(["info", str(tmp_path / "nothing"), "--verify"]) == 2
