"""What happens to a corpus: read, scored, filtered, exported, compared. `assay` is its public face."""
