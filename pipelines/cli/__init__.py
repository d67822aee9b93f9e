"""The command line: a module per group of commands, options generated from the settings, and printed reports.

No package imports it except `deploy`, for `assay serve`: what Python users need as well lives in the packages below.
"""
