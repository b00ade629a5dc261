"""Head and tail of a stream."""

from __future__ import annotations

import os

import pytest

from composer_rl.sandboxes.template.server import _Output


@pytest.mark.parametrize("total", [0, 1, 255, 256, 257, 300, 383, 384, 385, 5000, 70_001])
def test_head_and_tail(total: int) -> None:
    """Whole up to the limit, beyond it the first and the last bytes with a note between; wiped afterwards."""
    output = _Output(256)
    data = bytes(48 + k % 75 for k in range(total))
    for start in range(0, total, 1000):
        reader, writer = os.pipe()
        os.write(writer, data[start : start + 1000])
        os.close(writer)
        while output.read(reader):
            pass
        os.close(reader)
    kept = b"".join(output.parts())
    if total <= 256:
        assert kept == data
    else:
        note = f"\n... {total - 256} bytes left out ...\n".encode()
        assert kept == data[:128] + note + data[-128:]
    output.wipe()
    assert bytes(output._buffer) == bytes(256)
    assert output.parts() == [b""]
