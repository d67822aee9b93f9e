"""The main job: a corpus in, a scored corpus out. Start reading here, at `score_corpus`.

Knows nothing of ensembles, sampling and the command line.
"""
