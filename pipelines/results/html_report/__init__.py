"""One HTML file that shows a run, two runs, or an evaluation: opens from disk and asks no other host.

`sections` has a module for each section of the page, which turns what was read into plain data; `template` holds the page,
its style, its script and the chart library. Starts no model, and doesn't know Ray.
"""
