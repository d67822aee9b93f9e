"""What lives inside a worker process: a reward model's contract on a live engine. Knows nothing of datasets."""
