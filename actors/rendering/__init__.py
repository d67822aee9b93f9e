"""From a conversation to token ids: the chat template, safety against control tokens in content, the length policy.

Knows tokenizers and templates, and nothing of engines.
"""
