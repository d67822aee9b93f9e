"""Scores that are kept beyond a run, so that an equal request isn't paid for twice: `--store`.

    store/v1/IDENTITY/                 32 hex digits of the digest of all that decides the numbers
      identity.yaml                    these settings and hashes, for people
      ENTRIES-DIGEST.segment           an immutable Parquet file of entries: keys, and the scores under them

Knows rendered requests and scores, and nothing of corpora, runs and Ray.
"""
