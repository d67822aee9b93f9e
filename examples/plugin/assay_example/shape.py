"""Posts of a forum: {"title": str, "post": str, "reply": str}."""

from assay.plugins import ONLY_RESPONSE, Exchange, Message, Role, Row, RowRequests, Shape, answer, field, gather, text


def _read(row: Row) -> RowRequests:
    def exchange() -> Exchange:
        question = f"{text(field(row, 'title'))}\n\n{text(field(row, 'post'))}"
        return Exchange((Message(Role.USER, question),), answer(field(row, "reply")))

    return gather({ONLY_RESPONSE: exchange})


SHAPES = (
    Shape(
        "forum",
        "a post of a forum and a reply",
        "`title`, `post` and `reply`",
        lambda row: all(isinstance(row.get(key), str) for key in ("title", "post", "reply")),
        _read,
        reads=("title", "post", "reply"),
    ),
)
