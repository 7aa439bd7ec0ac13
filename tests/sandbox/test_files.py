"""Outputs on disk: found unwritable before the work, whole or absent after it."""

import pytest

from sandbox.errors import InputError
from sandbox.files import require_writable, write_json, write_whole


def test_places_that_cannot_be_written_are_found_before_the_work(tmp_path):
    require_writable(tmp_path / "new" / "result.json")
    require_writable(tmp_path / "new" / "run", folder=True)
    require_writable(tmp_path, folder=True)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/run: .*file is not a folder"):
        require_writable(tmp_path / "file" / "run")
    with pytest.raises(InputError, match=r"file: .*file is not a folder"):
        require_writable(tmp_path / "file", folder=True)
    with pytest.raises(InputError, match="it is a folder, expected a file path"):
        require_writable(tmp_path)


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "new" / "result.json"
    write_json(path, {"a": 1})
    before = path.read_text()
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(OSError, match="directory"):
        write_whole(path.parent, "x")
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]
