"""Tiny reward models that know the right answer to toy questions, and how they were made.

`synthetic` writes the questions (no torch needed), `tokenizer` and `train` make the two checkpoints in `attributes/` and
`scalar/`, `first_logit` and `learn_principles` those in `first-logit/` and `principle/`. Tests and the demo use them in
place of models of hundreds of gigabytes: same formats, same engine code.
"""
