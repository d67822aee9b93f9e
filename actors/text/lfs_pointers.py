"""Git LFS pointers: short texts that stand in a clone for large files, such as weights and rows, until these are fetched."""

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"


def lfs_problem(beginning: bytes) -> str | None:
    """What is wrong with a file that begins so and what to do, as words to follow its name; None if it is no pointer.

    The first 64 bytes of a file suffice.
    """
    if not beginning.startswith(_BEGINNING):
        return None
    return "is a Git LFS pointer and not the file itself: `git lfs pull` in its repository fetches it"
