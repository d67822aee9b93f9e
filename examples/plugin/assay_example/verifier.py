"""A verifier: code that compares a response with the reference, without a model. Its name is `--model`."""

from assay.plugins import Reason, Rejected, Unreadable, Verifier, without_weights


class SameWords(Verifier):
    """The same words in any order, each as often."""

    name = "same-words"
    summary = "the words of the reference in any order (no weights)"
    source = "my team"
    read_at = "the words of both texts, by white space, in lower case"
    models = without_weights(name, "words in any order", ("Red and blue", "blue and red", 1.0), ("red", "red red", 0.0))

    def compare(self, answer: str, reference: str) -> float:
        expected, actual = (sorted(text.lower().split()) for text in (reference, answer))
        if not expected:
            raise Rejected(Reason.BAD_REFERENCE)
        if not actual:
            raise Unreadable(Reason.NO_ANSWER)
        return float(actual == expected)


FAMILY = SameWords()
