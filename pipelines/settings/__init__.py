"""The settings of each command, frozen and validated, with one set of names; and recipes, which hold settings of several.

Imports nothing heavy, so that --help is instant. Holds no logic beyond validation.
"""
