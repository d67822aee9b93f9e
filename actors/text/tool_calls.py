"""Tool calls beside the turns of a conversation: which call a tool's turn answers."""

from actors.records import Message, Role, ToolCall


class OpenCalls:
    """The calls of an assistant's turn that no tool has answered yet, as a conversation goes on."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    def follow(self, turn: Message) -> ToolCall | None:
        """The call that the next turn answers: by its id, else the first one. None if it is no tool's, or answers none."""
        if turn.role is not Role.TOOL:
            self.calls = list(turn.calls)
            return None
        call = next((call for call in self.calls if turn.call_id is None or call.id in (None, turn.call_id)), None)
        if call is not None:
            self.calls.remove(call)
        return call
