"""What a run leaves in its folder, and how it is read again: parts, columns, manifest, summary, stored scores."""
