"""Logged chats, as WildChat and LMSYS-Chat-1M have them: {"conversation": [{"role": ..., "content": ...}, ...]}."""

from pipelines.data.formats.turns import conversation_shape, open_conversation_shape

SHAPE = conversation_shape("conversation", "conversation", "a logged chat (WildChat, LMSYS-Chat-1M)")
PROMPT_SHAPE = open_conversation_shape("conversation", "conversation", "a logged chat (WildChat, LMSYS-Chat-1M)")
