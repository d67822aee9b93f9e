"""The main job: a corpus in, a scored corpus out. Start reading here, at `score_corpus`.

Doesn't know ensembles, sampling or the command line.
"""
