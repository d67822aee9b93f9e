"""Many short texts as one, in tables of what a judge may write."""


def forms(table: str) -> list[str]:
    """The texts between `¦`, or on lines of their own, with a line end where `⏎` stands."""
    return [form.replace("⏎", "\n") for form in table.strip("\n").replace("\n", "¦").split("¦")]
