"""What is made of scored folders: filtered corpora, trainers' files, comparisons, evaluations, pages, uploads."""
