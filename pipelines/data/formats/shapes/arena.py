"""Chatbot Arena's battles: {"conversation_a": [turn, ...], "conversation_b": [turn, ...], "winner": str, ...}."""

from dataclasses import replace

from pipelines.data.formats.content import is_conversation
from pipelines.data.formats.own_columns import OwnColumns

SIDES = ("conversation_a", "conversation_b")

SHAPE = replace(
    OwnColumns(None, None, conversations=SIDES).shape(),
    name="arena",
    about="two models' conversations with the same user (Chatbot Arena)",
    needs="`conversation_a` and `conversation_b`, each a list of messages",
    looks_like=lambda row: all(is_conversation(row.get(side)) for side in SIDES),
)
