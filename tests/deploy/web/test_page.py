"""The page in a real browser, on the real application, whose fake engine makes the numbers up."""

import json
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.sync_api import Browser, Locator, Page, Request, Response, Route, expect

from actors.reward_model import resolve_model
from actors.scorers.online import OnlineScorer
from actors.settings.replica import EngineSettings, ModelSettings, RenderSettings
from deploy.models.service import ServedModel, Service
from deploy.settings import LimitSettings
from deploy.web.app import create_app
from deploy.web.auth import Keys
from tests.support.browsers import chromium
from tests.support.endpoints import InProcess

HEAD, JUDGE, BY_PRINCIPLE = "tiny-attributes", "tiny-genrm-json", "tiny-genrm-principle"
KEY = "0123456789abcdef"
RENDER, FAKE, LIMITS = RenderSettings(), EngineSettings(engine="fake"), LimitSettings()
EXAMPLE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is 3 + 4?"}],
    "responses": ["7", "9", "Seven, I think."],
}


@dataclass
class Visit:
    """A page, and what it did that it shouldn't have."""

    page: Page
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self._check_message(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._check_request)
        self.page.on("response", self._check_response)

    def _check_message(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not text.startswith("Failed to load resource"):  # see `_answered`
            self.faults.append(text)

    def _check_request(self, request: Request) -> None:
        if urlsplit(request.url).hostname != "127.0.0.1":
            self.faults.append(f"asked {request.url}")

    def _check_response(self, response: Response) -> None:
        if response.status >= 400 and not urlsplit(response.url).path.startswith("/v1/"):
            self.faults.append(f"{response.status} for {response.url}")


@pytest.fixture(scope="module")
def scorers() -> Iterator[dict[str, OnlineScorer]]:
    online_scorers = {
        name: OnlineScorer(resolve_model(ModelSettings(model=name), RENDER), RENDER, FAKE)
        for name in (HEAD, JUDGE, BY_PRINCIPLE)
    }
    yield online_scorers
    for scorer in online_scorers.values():
        scorer.close()


@contextmanager
def serving(scorers: dict[str, OnlineScorer], *keys: str) -> Iterator[str]:
    """The address of an endpoint in a thread."""

    async def ready() -> None:
        return None

    async def metrics() -> str:
        return ""

    models = [ServedModel((name,), scorer.model, InProcess(scorer), LIMITS) for name, scorer in scorers.items()]
    app = create_app(Service(models, LIMITS), Keys(keys), ready, metrics)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:  # from here on whoever comes waits until it is up
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def endpoint(scorers: dict[str, OnlineScorer]) -> Iterator[str]:
    with serving(scorers) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a new context, and says in the end whether it behaved."""
    visits: list[Visit] = []

    def opened(address: str, **context: Any) -> Page:
        visits.append(Visit(browser.new_context(**context).new_page()))
        visits[-1].page.goto(address)
        return visits[-1].page

    yield opened
    for item in visits:
        item.page.context.close()
        assert not item.faults


@pytest.fixture
def page(visit: Callable[..., Page], endpoint: str) -> Page:
    """The page, with its models there and its example judged."""
    opened = visit(endpoint)
    expect(opened.get_by_role("status")).to_contain_text("scored")
    return opened


def score(page: Page) -> Locator:
    """Press the button. The results, once they are there."""
    page.get_by_role("button", name="Score").click()
    expect(page.get_by_role("status")).to_contain_text("scored")
    return page.locator(".result")


def posted(page: Page, address: str, model: str, conversation: dict[str, Any]) -> Any:
    """What the endpoint itself says."""
    body = {"model": model, "conversations": [conversation], "trace": True}
    return page.request.post(f"{address}v1/rewards", data=body).json()["data"][0]


def rewards(page: Page) -> list[float]:
    """As they are shown, in full."""
    return [float(item.get_attribute("value") or "") for item in page.locator(".reward").all()]


def response(page: Page, letter: str) -> Locator:
    return page.get_by_label(f"Response {letter}", exact=True)


def x_of(locator: Locator) -> tuple[float, float]:
    """Where it begins and ends."""
    box = locator.bounding_box()
    assert box is not None
    return box["x"], box["x"] + box["width"]


def test_the_example_is_scored_as_the_endpoint_says(page: Page, endpoint: str) -> None:
    score(page)
    direct = posted(page, endpoint, HEAD, EXAMPLE)
    ranked = [direct["responses"][index] for index in direct["ranking"]]
    assert rewards(page) == [item["reward"] for item in ranked]
    assert page.locator(".said").all_text_contents() == [EXAMPLE["responses"][index] for index in direct["ranking"]]
    assert page.locator(".rank").all_text_contents() == ["1.", "2.", "3."]
    shown = [float(item.get_attribute("value") or "") for item in page.locator("tbody tr").first.locator("data").all()]
    assert shown == [item["scores"]["helpfulness"] for item in ranked]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_the_page_opens_with_its_example_judged(visit: Callable[..., Page], endpoint: str, width: int, scheme: str) -> None:
    page = visit(endpoint, viewport={"width": width, "height": 740}, color_scheme=scheme)
    expect(page.get_by_role("status")).to_contain_text("3 of 3 responses scored.")
    direct = posted(page, endpoint, HEAD, EXAMPLE)
    assert rewards(page) == [direct["responses"][index]["reward"] for index in direct["ranking"]]
    assert page.evaluate("scrollY") == 0, "it stays where it opened"


def test_what_a_person_wrote_is_never_sent_unasked(visit: Callable[..., Page], endpoint: str) -> None:
    page, sent = visit(endpoint), list[Request]()
    response(page, "A").fill("something of theirs")
    page.wait_for_load_state("networkidle")
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.reload(wait_until="networkidle")
    expect(response(page, "A")).to_have_value("something of theirs")
    expect(page.locator(".result")).to_have_count(0)
    assert not sent


def test_an_endpoint_that_isnt_ready_is_told_without_an_alarm(visit: Callable[..., Page], endpoint: str) -> None:
    page = visit(endpoint)
    error = {"error": {"message": "tiny-attributes is starting"}}
    page.route("**/v1/rewards", lambda route: route.fulfill(status=503, json=error))
    page.reload()
    message = "The example isn't scored. The endpoint isn't ready. Try again soon. It says: tiny-attributes is starting"
    expect(page.get_by_role("status")).to_have_text(message)
    expect(page.get_by_role("alert")).to_be_empty()
    page.unroute("**/v1/rewards")
    score(page)


def test_the_formula_makes_the_rewards_of_the_scores(page: Page, endpoint: str) -> None:
    """Read as a person reads it: signs, weights, names."""
    score(page)
    text = page.locator(".formula").text_content() or ""
    terms = re.findall(r"([−+]?) ?([\d.]+)\u00a0× (\w+)", text.removeprefix("reward = "))
    assert len(terms) == 5
    weights = {name: float(weight) * (-1 if sign == "−" else 1) for sign, weight, name in terms}
    for response in posted(page, endpoint, HEAD, EXAMPLE)["responses"]:
        made = sum(weights[name] * value for name, value in response["scores"].items())
        assert response["reward"] == pytest.approx(made, abs=1e-3)


@pytest.mark.parametrize("model", [HEAD, JUDGE, BY_PRINCIPLE])
def test_every_number_of_the_table_is_explained(visit: Callable[..., Page], endpoint: str, model: str) -> None:
    page = visit(endpoint, viewport={"width": 360, "height": 740}, has_touch=True)
    page.get_by_label("Model").select_option(model)
    score(page)
    names = page.locator("#scores tbody th").all_text_contents()
    assert names
    page.get_by_text("What these numbers say").tap()
    legend = page.locator(".legend")
    assert legend.locator("dt").all_text_contents() == names
    for meaning in legend.locator("dd").all():
        expect(meaning).to_be_visible()
        assert "by this name" not in (meaning.text_content() or "")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_judges_reward_is_the_mean_of_its_judgements(page: Page, endpoint: str) -> None:
    page.get_by_label("Model").select_option(JUDGE)
    score(page)
    expect(page.locator(".formula")).to_have_text("reward = score, the mean of all judgements")
    for response in posted(page, endpoint, JUDGE, EXAMPLE)["responses"]:
        assert response["reward"] == pytest.approx(response["scores"]["score"])
        assert response["reward"] == pytest.approx(sum(response["votes"]) / len(response["votes"]))


def test_bars_begin_at_a_common_zero(visit: Callable[..., Page], endpoint: str) -> None:
    page = visit(endpoint, reduced_motion="reduce")  # or they are still growing
    results = score(page).all()
    actual_rewards = rewards(page)
    assert min(actual_rewards) < 0 < max(actual_rewards)
    zeros = [x_of(result.locator(".zero"))[0] for result in results]
    assert max(zeros) - min(zeros) < 0.1
    lengths = []
    for reward, zero, result in zip(actual_rewards, zeros, results, strict=True):
        remaining, right = x_of(result.locator(".fill"))
        assert abs((remaining if reward > 0 else right) - zero) < 1
        lengths.append((right - remaining) / abs(reward))
    assert max(lengths) - min(lengths) < 0.5  # pixels for each unit


def test_a_response_without_a_reward_says_why(page: Page) -> None:
    response(page, "B").fill("")
    score(page)
    rejected = page.locator(".result.rejected")
    expect(rejected).to_contain_text("Rejected: the response, or a turn before it, is empty empty_content")
    expect(rejected.locator(".bar, .reward")).to_have_count(0)
    expect(page.locator(".result").last).to_contain_text("empty_content")
    expect(page.get_by_role("status")).to_contain_text("2 of 3 responses scored")


def test_text_stays_text(page: Page) -> None:
    text = "<img src=x onerror='window.hurt = true'><script>window.hurt = true</script>"
    page.get_by_label("Turn 1", exact=True).fill(text)
    response(page, "A").fill(text)
    results = score(page)
    expect(results.filter(has_text=text)).to_have_count(1)
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.evaluate("window.hurt") is None


def test_the_keyboard_is_enough(page: Page) -> None:
    controls = page.locator("main :is(button, select, textarea):visible").count()
    reached = set()
    for _ in range(controls):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert len(reached) == controls
    response(page, "C").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("8")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".said", has_text="8")).to_be_visible()
    expect(response(page, "C")).to_be_focused()


def test_the_focus_goes_where_the_work_is(page: Page) -> None:
    page.get_by_role("button", name="Add response").press("Enter")
    expect(response(page, "D")).to_be_focused()
    page.get_by_role("button", name="Remove response B").press("Enter")
    expect(response(page, "B")).to_be_focused()
    expect(response(page, "B")).to_have_value("Seven, I think.")
    page.get_by_role("button", name="Add turn").press("Enter")
    expect(page.get_by_label("Turn 2", exact=True)).to_be_focused()
    expect(page.get_by_label("Role of turn 2")).to_have_value("assistant")
    page.get_by_role("button", name="Remove turn 2").press("Enter")
    page.get_by_role("button", name="Remove turn 1").press("Enter")
    expect(page.get_by_label("Turn 1", exact=True)).to_be_focused()  # there is always one
    expect(page.get_by_label("Turn 1", exact=True)).to_have_value("")


def test_a_judge_shows_what_it_wrote(page: Page, endpoint: str) -> None:
    page.get_by_label("Model").select_option(JUDGE)
    score(page)
    direct = posted(page, endpoint, JUDGE, EXAMPLE)
    best = direct["responses"][direct["ranking"][0]]
    message = page.locator(".result").first.locator("details")
    expect(message).to_have_count(len(best["trace"]))
    message.first.locator("summary").press("Enter")
    expect(message.first.locator("pre")).to_have_text(best["trace"][0]["text"])
    expect(message.first).to_contain_text("vote")


def test_principles_are_there_for_models_that_take_them(page: Page, endpoint: str) -> None:
    section = page.get_by_role("region", name="Principles")
    expect(section).to_be_hidden()
    page.get_by_label("Model").select_option(BY_PRINCIPLE)
    field = page.get_by_label("Principle 1", exact=True)
    expect(field).to_have_value("correctness")
    field.fill("")
    page.get_by_role("button", name="Score").click()
    expect(field).to_be_focused()  # it needs one
    expect(page.locator("#stale")).to_be_visible()  # what is shown is the other model's
    field.fill("brevity")
    score(page)
    direct = posted(page, endpoint, BY_PRINCIPLE, {**EXAMPLE, "principles": ["brevity"]})
    assert rewards(page) == [direct["responses"][index]["reward"] for index in direct["ranking"]]
    expect(page.locator("details").first).to_contain_text("Principle: brevity")


def test_a_key_is_asked_for(visit: Callable[..., Page], scorers: dict[str, OnlineScorer]) -> None:
    with serving(scorers, KEY) as address:
        page = visit(address)
        dialog = page.get_by_role("dialog", name="API key")
        dialog.get_by_label("Key", exact=True).fill("a-wrong-one")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_have_text("The key that was given isn't accepted.")
        dialog.get_by_label("Key", exact=True).fill(KEY)
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        score(page)
        page.reload()
        score(page)
        assert KEY not in json.dumps(page.context.storage_state())  # cookies and localStorage
        page.context.close()


def test_a_key_that_isnt_given_is_told(visit: Callable[..., Page], scorers: dict[str, OnlineScorer]) -> None:
    with serving(scorers, KEY) as address:
        page = visit(address)
        page.get_by_role("dialog", name="API key").get_by_label("Key", exact=True).press("Escape")
        expect(page.get_by_role("alert")).to_have_text("A valid API key is needed. Press Score to try again.")
        page.context.close()


@pytest.mark.parametrize("wrapped", [False, True])
def test_json_is_pasted(page: Page, wrapped: bool) -> None:
    turns = [{"role": "system", "content": "Add."}, {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
    messages = [*turns, {"role": "assistant", "content": "4"}]
    page.get_by_role("button", name="Paste JSON").click()
    page.get_by_label("JSON", exact=True).fill(
        json.dumps({"messages": messages, "responses": ["5"]} if wrapped else messages)
    )
    page.keyboard.press("Control+Enter")
    expect(response(page, "A")).to_be_focused()
    assert [box.input_value() for box in page.locator("#ask textarea").all()] == ["Add.", "2 + 2?", "4", *["5"] * wrapped]
    expect(page.get_by_label("Role of turn 1")).to_have_value("system")
    score(page)


@pytest.mark.parametrize(
    ("pasted", "message"),
    [
        ('[{"role": "user"', "This isn't JSON"),
        ('{"prompt": "2 + 2?"}', "There are no messages"),
        ('[{"role": "<b>robot</b>", "content": "2 + 2?"}]', 'Message 1 has the role "<b>robot</b>"'),
        ('[{"role": "user", "content": [{"type": "image_url"}]}]', "Message 1 has a content that isn't text alone"),
        ('[{"role": "assistant", "content": "4"}]', "There is an answer, and no turn before it"),
    ],
)
def test_json_that_cant_be_read_is_told(page: Page, pasted: str, message: str) -> None:
    page.get_by_role("button", name="Paste JSON").click()
    dialog = page.get_by_role("dialog", name="Paste JSON")
    dialog.get_by_label("JSON", exact=True).fill(pasted)
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog.get_by_role("alert")).to_contain_text(message)
    page.keyboard.press("Escape")
    expect(response(page, "A")).to_have_value("7")


def test_an_error_is_told_in_words_and_the_form_is_kept(page: Page) -> None:
    error = {"error": {"message": "<b>3</b> requests are under way already"}}
    page.route("**/v1/rewards", lambda route: route.fulfill(status=429, json=error, headers={"Retry-After": "7"}))
    page.get_by_role("button", name="Score").click()
    expect(page.get_by_role("alert")).to_have_text(
        "The endpoint has too much to do. Try again in 7 s. It says: <b>3</b> requests are under way already"
    )
    expect(response(page, "C")).to_have_value("Seven, I think.")
    page.unroute("**/v1/rewards")
    score(page)
    expect(page.get_by_role("alert")).to_be_empty()


def test_waiting_can_be_cancelled(page: Page) -> None:
    page.route("**/v1/rewards", lambda _: None)  # never answers
    button = page.locator("#score")
    button.press("Enter")
    expect(button).to_be_disabled()
    expect(button).to_have_text("Scoring…")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_be_focused()
    expect(page.get_by_role("status")).to_have_text("Cancelled.")


def test_what_was_shown_is_marked_once_it_is_old(page: Page) -> None:
    score(page)
    expect(page.locator("#stale")).to_be_hidden()
    response(page, "A").fill("it's 7")
    expect(page.locator("#stale")).to_be_visible()
    page.reload()
    expect(response(page, "A")).to_have_value("it's 7")


def test_clearing_can_be_undone(page: Page) -> None:
    page.get_by_role("button", name="Clear").click()
    assert [box.input_value() for box in page.locator("#ask textarea").all()] == ["", ""]
    page.get_by_role("button", name="Undo clear").click()
    expect(response(page, "C")).to_have_value("Seven, I think.")


def test_the_same_request_is_copied_for_curl(page: Page, endpoint: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    response(page, "A").fill("it's\n$HOME")
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_role("status")).to_have_text("Copied.")
    words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert words[:3] == ["curl", "-sS", f"{endpoint}v1/rewards"]
    score(page)
    answer = page.request.post(
        words[2], headers={"Content-Type": "application/json"}, data=words[words.index("-d") + 1]
    ).json()
    assert rewards(page) == [answer["data"][0]["responses"][index]["reward"] for index in answer["data"][0]["ranking"]]


def test_a_key_isnt_copied(visit: Callable[..., Page], scorers: dict[str, OnlineScorer]) -> None:
    with serving(scorers, KEY) as address:
        page = visit(address, permissions=["clipboard-read", "clipboard-write"])
        page.get_by_label("Key", exact=True).fill(KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#model-facts")).not_to_be_empty()
        page.get_by_role("button", name="Copy as curl").click()
        expect(page.get_by_role("status")).to_have_text("Copied.")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert KEY not in copied
        assert '-H "Authorization: Bearer $ASSAY_API_KEY"' in copied
        page.context.close()


@pytest.mark.parametrize("opens", ["", "#paste-dialog", "#key-dialog", "#curl-dialog"])
def test_every_control_has_a_name(page: Page, opens: str) -> None:
    page.get_by_label("Model").select_option(BY_PRINCIPLE)
    if opens:
        page.locator(opens).evaluate("dialog => dialog.showModal()")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in tree if node.get("role", {}).get("value") in {"textbox", "combobox", "button", "dialog"}]
    assert len(controls) > 1
    assert all(node["name"]["value"].strip() for node in controls)


def test_the_button_waits_for_the_models(visit: Callable[..., Page], endpoint: str) -> None:
    """They move it: a click that was under way missed it, and nothing was scored."""
    page, held = visit(endpoint), list[Route]()
    page.route("**/v1/models", lambda route: held.append(route))  # noqa: PLW0108  Playwright takes no built-in function
    with page.expect_request("**/v1/models"):
        page.reload()
    expect(page.get_by_role("button", name="Score")).to_be_disabled()
    (route,) = held
    route.continue_()
    assert score(page).count() == len(EXAMPLE["responses"])


def test_presses_while_the_models_load_are_one_request(visit: Callable[..., Page], endpoint: str) -> None:
    """Enter is repeated while it is held; each would generate with a judge, and Cancel stops the last only."""
    page, held, sent = visit(endpoint), list[Route](), list[Request]()
    page.route("**/v1/models", lambda route: held.append(route))  # noqa: PLW0108  Playwright takes no built-in function
    with page.expect_request("**/v1/models"):
        page.reload()
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    for _ in range(3):
        response(page, "A").press("Control+Enter")
    for route in held:
        route.continue_()
    expect(page.locator("#results-title")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert len(sent) == 1


def test_the_page_doesnt_scroll_on_after_a_touch(visit: Callable[..., Page], endpoint: str) -> None:
    """At the end of the form its bar moves with it: where it went on scrolling, a press of the button missed it."""
    page = visit(endpoint, viewport={"width": 360, "height": 740}, reduced_motion="no-preference")
    response(page, "A").fill("W" * 300)
    at_once, at_last = (
        page.evaluate(f"scrollTo(0, 0), document.getElementById('results').scrollIntoView({how}), scrollY")
        for how in ("", "{behavior: 'instant'}")
    )
    assert at_once == at_last > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(visit: Callable[..., Page], endpoint: str, scheme: str) -> None:
    page = visit(endpoint, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    response(page, "A").fill("W" * 300)
    score(page)
    expect(page.locator("#results-title")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(16, 20, 21)") == (scheme == "dark")
