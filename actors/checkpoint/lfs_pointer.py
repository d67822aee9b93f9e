"""Git LFS pointers: a few lines of text that stand in a clone where a large file wasn't fetched."""

LFS_ADVICE = "fetch what it stands for with `git lfs install` and `git lfs pull` in the clone, or download the file itself"

_BEGIN = b"version https://git-lfs.github.com/spec/v1"


def is_lfs_pointer(first_bytes: bytes) -> bool:
    """Whether a file that begins so is a pointer; 42 bytes are enough."""
    return first_bytes.startswith(_BEGIN)
