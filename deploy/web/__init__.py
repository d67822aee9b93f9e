"""The web application: routes, keys, limits, answers shared by many, and the page.

Knows no Ray, so that it can be tested as it is.
"""
