"""From rendered requests to scores on a live engine, by a head or by what a judge writes; and the self-test.

Knows no Ray, no file and no dataset: what runs in a Ray actor is in `actors.workers`.
"""
