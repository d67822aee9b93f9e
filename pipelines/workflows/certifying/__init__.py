"""Certificates: a sample of rows, changed in what should not matter, scored before and after by the ordinary run."""
