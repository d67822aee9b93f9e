"""OpenAI messages: {"messages": [{"role": ..., "content": ...}, ...]}."""

from pipelines.data.formats.turns import conversation_shape, open_conversation_shape

SHAPE = conversation_shape("messages", "messages", "a conversation in OpenAI's form")
PROMPT_SHAPE = open_conversation_shape("messages", "messages", "a conversation in OpenAI's form")
