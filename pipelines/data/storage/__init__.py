"""Files and folders on this machine or in a store, leases on folders, and fingerprints of files.

Handles bytes and names, and doesn't know what the files contain.
"""

from pipelines.data.storage.addresses import absolute, is_in_job, is_remote, overlap, real
from pipelines.data.storage.file_names import file_name
from pipelines.data.storage.files import (
    arrow_file_system,
    below,
    error_text,
    file_status,
    files_below,
    find,
    folder,
    is_folder,
    open_read,
)
from pipelines.data.storage.protocol import LEASE, RESTORE, Entry, FileStatus, Folder, written_to

__all__ = [
    "LEASE",
    "RESTORE",
    "Entry",
    "FileStatus",
    "Folder",
    "absolute",
    "arrow_file_system",
    "below",
    "error_text",
    "file_name",
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
    "written_to",
]
