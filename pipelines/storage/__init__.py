"""Files and folders wherever they are, leases on folders, and fingerprints of files.

Knows bytes and names, and nothing of what they hold.
"""

from pipelines.storage.files import (
    LEASE,
    Entry,
    Folder,
    Found,
    absolute,
    arrow_file_system,
    below,
    error_text,
    files_below,
    find,
    folder,
    in_a_job,
    is_remote,
    look,
    open_read,
    overlap,
    real,
)

__all__ = [
    "LEASE",
    "Entry",
    "Folder",
    "Found",
    "absolute",
    "arrow_file_system",
    "below",
    "error_text",
    "files_below",
    "find",
    "folder",
    "in_a_job",
    "is_remote",
    "look",
    "open_read",
    "overlap",
    "real",
]
