"""What lies on disks and in stores: files, rows, and how each is read. Knows no model and no run."""
