"""What a judge wrote, turned into numbers: parsing, verdict tokens, wins of pairwise comparisons, knock-outs.

Knows no family; each family picks what its dialect needs.
"""
