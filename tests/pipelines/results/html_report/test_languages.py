"""The language of texts, and whether a reward goes along with it."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.results.html_report.languages import UNCLEAR, language_of
from pipelines.results.html_report.sections.correlations import correlations
from tests.pipelines.results.html_report.test_build import corpus, open_all, read_all

# The first sentence of the Universal Declaration of Human Rights.
DECLARATION = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "ar": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "zh": "人人生而自由,在尊严和权利上一律平等。",
}


def test_the_language_of_a_sentence_or_that_it_is_unclear() -> None:
    for language, text in DECLARATION.items():
        assert language_of(text) == language
    short_or_none = ("", "Yes.", "42", "7 + 5 = 12, 12 * 3 = 36, 36 - 1 = 35", "asdf qwer zxcv poiu lkjh mnbv yxcv")
    for text in (*short_or_none, "👍" * 8, "x" * 40, "\ud800" * 30):
        assert language_of(text) == UNCLEAR


def test_code_counts_for_no_language() -> None:
    code = "```python\n# the number of people who have been here before all of the others\nprint(count)\n```"
    assert language_of(f"{code}\n" * 3) == UNCLEAR
    assert language_of(f"{code}\n{DECLARATION['de']}\n{code}") == "de"
    assert language_of(f"{DECLARATION['fr']}\n```\nwith no end, and all of this is code of the same kind as before") == "fr"


def languages_corpus(folder: Path, german: int, shift: float, *, short: int = 0) -> str:
    rng = random.Random(5)
    texts = [DECLARATION["de"] if index < german else DECLARATION["en"] for index in range(2000)]
    texts[2000 - short :] = ["Yes."] * short
    rewards: list[float | None] = [rng.gauss(0, 1) + shift * (index < german) for index in range(2000)]
    return corpus(folder, rewards, texts)


def test_responses_by_language_and_their_mean_rewards(tmp_path: Path) -> None:
    texts = [DECLARATION[name] for name in ("en", "de", "en", "fr", "en", "de")] + ["Yes."]
    with open_all(corpus(tmp_path / "s", [1.0, 2.0, 3.0, None, 5.0, 6.0, 7.0], texts)) as responses:
        shown = correlations(read_all(responses))
    assert shown["languages"] == [("en", 3, 3.0), ("de", 2, 4.0), (UNCLEAR, 1, 7.0)]
    other = shown["rows"][-1]
    assert (other["label"], other["mean"]) == ('language other than "en"', 0.4)
    assert sorted(shown["points"]["other_language"], key=str) == [0, 0, 0, 1, 1, None]


@pytest.mark.parametrize(("shift", "word"), [(4.0, "higher"), (0.0, None), (-4.0, "lower")])
def test_another_language_that_is_rewarded_more_or_less_is_warned_of(tmp_path: Path, shift: float, word: str | None) -> None:
    with open_all(languages_corpus(tmp_path / "s", 40, shift, short=500)) as responses:
        warnings = correlations(read_all(responses))["warnings"]
    expected = f'Responses in other languages than "en" have {word} rewards than those in "en": in '
    assert [warning[: len(expected)] for warning in warnings] == ([expected] if word else [])
    assert all("% of pairs, over 40 of them and 1,460 others." in warning for warning in warnings)


@pytest.mark.parametrize(("shift", "word"), [(2.0, "higher"), (0.0, None), (-2.0, "lower")])
def test_a_single_language_is_warned_of_though_the_others_together_are_level(
    tmp_path: Path, shift: float, word: str | None
) -> None:
    rng = random.Random(6)
    languages = [rng.choices(["en", "fr", "ru"], [50, 45, 5])[0] for _ in range(1500)]
    rewards: list[float | None] = [rng.gauss(0, 1) + shift * (language == "ru") for language in languages]
    texts = [DECLARATION[language] for language in languages]
    with open_all(corpus(tmp_path / "s", rewards, texts)) as responses:
        warnings = correlations(read_all(responses))["warnings"]
    expected = f'Responses in "ru" have {word} rewards than those in "en": in '
    assert [warning[: len(expected)] for warning in warnings if '"ru"' in warning] == ([expected] if word else [])
    assert not [warning for warning in warnings if '"fr"' in warning or "other languages" in warning]


def test_a_correlation_with_the_language_is_said_of_the_languages(tmp_path: Path) -> None:
    with open_all(languages_corpus(tmp_path / "s", 900, -1.0)) as responses:
        (warning,) = [row["warning"] for row in correlations(read_all(responses))["rows"] if row["name"] == "other_language"]
    assert warning.startswith('Responses in "en" have higher rewards: Spearman\'s correlation is -0.4')


def test_the_classifier_is_loaded_for_a_report_alone() -> None:
    code = "import sys, pipelines.results.html_report.build; sys.exit('py3langid' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
