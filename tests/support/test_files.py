"""A file is replaced whole or not at all."""

import os

import pytest

from tustin.support.files import replacing, write_text


def test_written_and_replaced(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "α")
    write_text(path, "β")
    assert path.read_text(encoding="utf-8") == "β"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("a bug")])
def test_a_failure_in_between_keeps_the_old_and_leaves_nothing(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), replacing(path) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_disk_that_is_full_at_the_very_end(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write '.*a\.txt': No space left on device"):
        write_text(tmp_path / "a.txt", "text")
    assert os.listdir(tmp_path) == []


def test_permissions_and_links_stay(tmp_path):
    path, link = tmp_path / "a.txt", tmp_path / "link.txt"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_name_as_long_as_names_may_be(tmp_path):
    write_text(tmp_path / ("n" * 255), "text")


def test_no_folder_and_a_folder_in_the_way(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_text(tmp_path / "nowhere" / "a.txt", "text")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        write_text(tmp_path, "text")
