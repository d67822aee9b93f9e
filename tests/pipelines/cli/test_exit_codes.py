"""What a command ends with, by what ended it."""

import errno
import os
from typing import Any

import pytest

from actors.errors import OutputError
from pipelines.cli import app as command


@pytest.mark.parametrize(
    ("number", "wrapped", "code"),
    [(errno.ENOSPC, True, 3), (errno.EDQUOT, False, 3), (errno.EACCES, True, 2)],
    ids=["a full disk", "a used-up share of a disk", "no permission"],
)
def test_a_full_disk_is_no_wrong_command(
    number: int, wrapped: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(**_: Any) -> None:
        cause = OSError(number, os.strerror(number))
        if not wrapped:
            raise cause
        raise OutputError(f"out can't be written: {cause.strerror}") from cause

    monkeypatch.setattr(command, "cli", write)
    with pytest.raises(SystemExit) as end:
        command._run()
    assert end.value.code == code
    text = capsys.readouterr().err
    assert os.strerror(number) in text
    assert ("to resume" in text) is (code == 3)
