"""One state of a file that others may write while it is read: what it held when it was opened, and no byte more."""

import os
import stat
from typing import BinaryIO

_SAMPLE_BYTES = 64
_MAX_SAMPLES = 256
CUT = "the file was cut while it was read: {read} of its {size} bytes are counted"
ANEW = "the file was written anew in place while it was read: what is counted may never have stood in it together"


class Snapshot:
    """A stream that ends where its file ended when it was opened; a pipe ends where it ends.

    A file that is replaced by another one keeps its bytes for who has it open. One that is cut, or written anew in place, does
    not: then `change` says so.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Take a stream, which has `readinto`, at its present position."""
        self._stream = stream
        self.size_bytes = _size_bytes(stream)
        """Size of the file when it was opened, None for a pipe."""
        self._begin = stream.tell() if self.size_bytes else 0
        # A size of 0 says nothing: files of /proc and some network file systems have it.
        self._left = self.size_bytes - self._begin if self.size_bytes else None
        self._samples: list[tuple[int, bytes]] = []
        self._num_read, self._stride = 0, 1
        self.num_bytes = 0
        """Bytes read so far."""
        self._is_cut = False

    def readinto(self, target: memoryview) -> int:
        """Put the next bytes at the front of `target` and return how many, 0 at the end. Raises OSError."""
        if self._left is not None:
            target = target[: max(0, self._left - self.num_bytes)]
        if not target:
            return 0
        count: int = self._stream.readinto(target) or 0  # type: ignore[attr-defined]  # raw and buffered streams have it
        if count and self.size_bytes:
            self._remember(bytes(target[max(0, count - _SAMPLE_BYTES) : count]), self.num_bytes + count)
        self.num_bytes += count
        self._is_cut = not count and self._left is not None
        return count

    def _remember(self, sample: bytes, end: int) -> None:
        """Keep some of the bytes, evenly over the file, that are looked at again in the end."""
        if self._num_read % self._stride == 0:
            self._samples.append((self._begin + end - len(sample), sample))
        self._num_read += 1
        if len(self._samples) >= _MAX_SAMPLES:
            self._samples, self._stride = self._samples[::2], 2 * self._stride

    def change(self) -> str | None:
        """Say, once all was read, that the file was cut or written anew meanwhile; None where it was not, or has only grown."""
        if self._left is None:
            return None
        if self._is_cut:
            return CUT.format(read=self.num_bytes, size=self._left)
        try:
            descriptor = self._stream.fileno()
            is_same = all(os.pread(descriptor, len(sample), at) == sample for at, sample in self._samples)
        except OSError:  # what was read was read well
            return None
        return None if is_same else ANEW


def _size_bytes(stream: BinaryIO) -> int | None:
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # a stream in memory has no descriptor
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
