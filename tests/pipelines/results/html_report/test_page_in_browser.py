"""The page in a real browser, opened from disk without a network."""

import random
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, Locator, Page

from pipelines.cli.app import cli
from pipelines.data.formats import RowShape
from pipelines.results.filtering.filter_corpus import keep
from pipelines.settings.filter_settings import FilterSettings
from pipelines.settings.options import build
from tests.support.browsers import chromium
from tests.support.candidates import drawn_corpus, judged_corpus, prompts
from tests.support.corpora import chat

MESSAGES = RowShape("messages")
HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "</pre></details><style>body { display: none }</style>",
    "<!-- <script> {{ 7 * 7 }} {% raw %}",
    "\u202eright to left\u2066 and never back",
    "bell \x07, nothing \x00, \x9b31mred, \u2028 line",
    "<a href='https://example.com/' ping='https://example.com/'>click</a><link rel=preload href=//example.com>",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a file in a context without a network. In the end nothing may have been requested, and nothing gone wrong."""
    faults: list[str] = []
    contexts = []

    def opened(path: Path, **how: Any) -> Page:
        contexts.append(browser.new_context(offline=True, **how))
        page = contexts[-1].new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults


def report(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["report", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder whose name, and one of whose outputs, must be quoted in a command."""
    rng = random.Random(1)
    rows = [chat(f"q{index}", "word " * rng.randint(1, 50), topic=rng.choice("abc")) for index in range(500)]
    rewards = [[{"reward": rng.gauss(0, 1), "in order": rng.random()}] if index % 9 else [None] for index in range(500)]
    folder = tmp_path_factory.mktemp("corpora") / "it's scored"
    return judged_corpus(folder, rows, rewards, MESSAGES, outputs=("reward", "in order"), parquet=True, part_rows=100)


def drag(slider: Locator, value: int) -> None:
    slider.evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }", value
    )


def test_the_cut_that_is_dragged_to_keeps_what_the_filter_of_its_command_keeps(
    visit: Callable[..., Page], scored: str, tmp_path: Path
) -> None:
    report(scored, "--out", tmp_path / "r.html", "--by", "topic", "--sample", 100)
    page = visit(tmp_path / "r.html")
    slider = page.get_by_role("slider")
    for output in ("reward", "scores.in order"):
        page.get_by_label("Output").select_option(output)
        for value in (0, 17, 200, int(slider.get_attribute("max") or 0)):
            drag(slider, value)
            words = shlex.split(page.locator(".command code").text_content() or "")
            assert words[:4] == ["assay", "filter", scored, "kept/"]
            summary = keep(build(FilterSettings, {"scored": scored, "where": words[words.index("--where") + 1]}))
            assert page.locator("[data-fact=kept]").text_content() == f"{summary.kept:,}"
            assert page.locator("[data-fact=share]").text_content() == f"{100 * summary.kept / 500:.2f} %"
            assert page.locator("[data-fact=tokens]").text_content() == f"{7 * summary.kept:,}"


def test_the_examples_beside_the_cut_are_the_nearest_ones(visit: Callable[..., Page], scored: str, tmp_path: Path) -> None:
    report(scored, "--out", tmp_path / "r.html", "--sample", 100)
    page = visit(tmp_path / "r.html")
    for value in (50, 333):
        drag(page.get_by_role("slider"), value)
        cut = float((page.locator(".explorer output").text_content() or "").removeprefix("≥ "))
        above, below = (
            [float(shown) for shown in page.locator(f"[data-side={side}] b").all_text_contents()]
            for side in ("above", "below")
        )
        assert above == sorted(above)
        assert below == sorted(below, reverse=True)
        assert len(above) == len(below) == 3
        assert below[0] < cut <= above[0] + 1e-6
        names = page.locator("[data-side] h4 bdi").all_text_contents()
        assert len(names) == 6
        assert all(re.fullmatch(r"c:\d+ final", name) for name in names)


def test_a_hostile_corpus_is_shown_as_text(visit: Callable[..., Page], tmp_path: Path) -> None:
    texts = [*HOSTILE, "x" * 2**20, *(f"plain {index}" for index in range(2))]
    rows = [chat(text, text, topic=text) for text in texts]
    rewards = [[float(index)] for index in range(len(texts))]
    folder = judged_corpus(tmp_path / "<b>s", rows, rewards, MESSAGES, parquet=True)
    report(folder, "--out", tmp_path / "r.html", "--by", "topic")
    page = visit(tmp_path / "r.html")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, a, link").count() == 0
    assert page.locator("style").count() == 1
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content") or ""
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    hashes = {name: directives.pop(name) for name in ("script-src", "style-src")}
    assert directives == dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    assert all(re.fullmatch(r"'sha256-[^' ]+'", source) for source in hashes.values())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    shown = page.locator(".examples pre.response").all_text_contents()
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[3]} <= set(shown)
    assert "⟨U+202E⟩right to left⟨U+2066⟩ and never back" in shown
    assert "bell ⟨U+0007⟩, nothing ⟨U+0000⟩, ⟨U+009B⟩31mred, ⟨U+2028⟩ line" in shown
    assert any(text.endswith("… [cut: 1,048,576 characters in all]") and len(text) < 4_000 for text in shown)
    assert HOSTILE[0] in page.locator(".groups bdi").all_text_contents()
    slider = page.get_by_role("slider")
    drag(slider, 1)
    assert HOSTILE[0] in page.locator("[data-side=below] pre").all_text_contents()
    assert page.locator("[data-side] script, [data-side] img").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    "text", ["<" * 5_000, *(pytest.param(sign * 5_000, marks=pytest.mark.long) for sign in ("\x9b", "\U0001f600", "\x00"))]
)
def test_the_page_is_small_whatever_the_texts_are(tmp_path: Path, text: str) -> None:
    rows = [chat(text, f"{text}{index}") for index in range(400)]
    rewards = [[None] if index % 9 == 0 else [float(index)] for index in range(400)]
    folder = judged_corpus(tmp_path / "s", rows, rewards, MESSAGES, part_rows=100)
    report(folder, "--out", tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 8_000_000


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "light"),
        (1200, "dark"),
        *(pytest.param(width, scheme, marks=pytest.mark.long) for width, scheme in ((360, "dark"), (1200, "light"))),
    ],
)
def test_it_fits_every_screen_in_both_schemes(
    visit: Callable[..., Page], scored: str, tmp_path: Path, scheme: str, width: int
) -> None:
    report(scored, scored, "--out", tmp_path / "r.html", "--by", "topic")
    page = visit(tmp_path / "r.html", color_scheme=scheme, viewport={"width": width, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(16, 20, 21)") == (scheme == "dark")
    charts = page.locator(".chart")
    assert (
        charts.count() == page.locator(".chart canvas").count() == 2 + 2 * (3 + 1 + 1)
    )  # of both two; of each three outputs, the cut, points


def test_charts_follow_the_scheme_and_the_width(visit: Callable[..., Page], scored: str, tmp_path: Path) -> None:
    report(scored, "--out", tmp_path / "r.html")
    page = visit(tmp_path / "r.html", color_scheme="light", viewport={"width": 1200, "height": 740})
    drag(page.get_by_role("slider"), 40)
    kept = page.locator("[data-fact=kept]").text_content()
    chart = page.locator("[data-explorer] canvas")
    wide, drawn = chart.get_attribute("width"), chart.evaluate("(canvas) => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("(drawn) => document.querySelector('[data-explorer] canvas').toDataURL() !== drawn", arg=drawn)
    page.set_viewport_size({"width": 500, "height": 740})
    page.wait_for_function("(wide) => document.querySelector('[data-explorer] canvas').width < Number(wide)", arg=wide)
    assert page.locator("[data-fact=kept]").text_content() == kept  # the cut stays where it was


def test_every_point_is_drawn_and_languages_have_names(visit: Callable[..., Page], tmp_path: Path) -> None:
    sentences = [
        "All of them are born free and equal in rights.",
        "Sie sind alle frei und gleich an Rechten geboren.",
        "Yes.",
    ]
    rows = [chat("q", sentences[index % 3]) for index in range(90)]
    report(
        judged_corpus(tmp_path / "s", rows, [[float(index)] for index in range(90)], MESSAGES), "--out", tmp_path / "r.html"
    )
    page = visit(tmp_path / "r.html")
    assert page.locator(".languages th[data-language]").all_text_contents() == ["German (de)", "English (en)", "unclear"]
    for feature, points in (("characters", 90), ("other_language", 60)):
        page.locator(".correlations select").select_option(feature)
        chart = "drawn.get(document.querySelector('.correlations .chart')).plot"
        assert page.evaluate(f"{chart}.data[0].length") == points
        assert page.evaluate(f"{chart}.series[1].idxs") == [0, points - 1]


def test_a_sampled_corpus_draws_its_curve(visit: Callable[..., Page], tmp_path: Path) -> None:
    candidates = [[(f"text {index}", float(index + row)) for index in range(4)] for row in range(3)]
    folder = drawn_corpus(tmp_path / "s", [{"prompt": f"q{index}"} for index in range(3)], candidates, prompts())
    report(folder, "--out", tmp_path / "r.html")
    page = visit(tmp_path / "r.html")
    for about in ("the mean best reward of n candidates", "the lengths of candidates in tokens"):
        assert page.locator(f"[aria-label='{about}'] canvas").count() == 1


def test_the_command_says_what_it_wrote(scored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_address(address: str) -> bool:
        opened.append(address)
        return len(opened) == 1

    monkeypatch.setattr("webbrowser.open", open_address)
    output = report(scored, "--out", tmp_path / "r.html", "--open")
    assert output == f"Written to {tmp_path / 'r.html'} ({(tmp_path / 'r.html').stat().st_size / 1e6:.1f} MB)\n"
    assert opened == [(tmp_path / "r.html").as_uri()]
    without = report(scored, "--out", tmp_path / "r.html", "--open")
    assert without.endswith("There is no browser here that --open could start; open the file elsewhere\n")
