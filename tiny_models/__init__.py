"""Tiny reward models that know the right answer to toy questions, and how they were made.

`synthetic` writes the questions (no torch needed), `tokenizer` and `train` make the two checkpoints in `attributes/` and
`scalar/`. All others that score grow out of `scalar`: `first_logit` and `learn_principles` make the two language models,
and `math_rm`, `internlm2`, `math_prm`, `mean_variance` and `five_class` the models that are named as they are. The judges
that write have data of their own, `judging` and `dialects`, and come from `learn_judging`; the policy, from `learn_policy`,
answers the questions that `arithmetic` asks. Tests and the demo use them all in place of models of hundreds of gigabytes:
same formats, same engine code.
"""
