"""From settings to a resolved run, and from raw rows to rendered requests and policy prompts.

Decides everything that decides a number (`identity`), before the first engine starts; writes nothing.
"""
