"""Files and folders on this machine or in a store, leases on folders, and fingerprints of files.

Handles bytes and names, and doesn't know what the files contain.
"""

from pipelines.storage.files import (
    LEASE,
    Entry,
    FileStatus,
    Folder,
    absolute,
    arrow_file_system,
    below,
    error_text,
    file_status,
    files_below,
    find,
    folder,
    is_folder,
    is_in_job,
    is_remote,
    open_read,
    overlap,
    real,
)

__all__ = [
    "LEASE",
    "Entry",
    "FileStatus",
    "Folder",
    "absolute",
    "arrow_file_system",
    "below",
    "error_text",
    "file_status",
    "files_below",
    "find",
    "folder",
    "is_folder",
    "is_in_job",
    "is_remote",
    "open_read",
    "overlap",
    "real",
]
