"""Ensembles: several models score one corpus, and their rewards, aligned response by response, become one scored corpus.

Independent of sampling, of the command line and of exports.
"""
