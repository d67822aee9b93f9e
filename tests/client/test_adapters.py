"""Each adapter gives its trainer the endpoint's number, or what that trainer has for none; called as the trainer calls it.

TRL's and verifiers' own code calls it here, that of verl, OpenRLHF and SkyRL in test_trainers.py. No index has the others'
packages: their calls are restated from the sources that docs/guides/trainers/ names.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import BaseModel
from typing_extensions import TypeVar

from actors.records import Reasoning
from actors.scorers.online import OnlineScorer
from actors.settings.replica import RenderSettings
from actors.text.reasoning import MARKS
from assay_client import Client, NoReward, default_client
from assay_client._answers import _BEGINS, with_opening
from assay_client._turns import read_rollout
from assay_client.trl import AssayReward, AsyncAssayReward
from deploy.api.rewards import Conversation, _parse
from pipelines.data.formats import SHAPES
from tests.support.endpoints import ANSWERED, QUESTION, application, listening, scorer

EMPTY = [*QUESTION, {"role": "assistant", "content": ""}]
CALLED = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": "{}"}}],
    },
    {"role": "tool", "content": "7"},
    ANSWERED[-1],
]


def add(a: int, b: int) -> int:
    """Adds numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


NUMBERS = {name: {"type": "integer", "description": f"the {what}"} for name, what in (("a", "first"), ("b", "second"))}
TOOL = {"name": "add", "description": "Adds numbers.", "parameters": {"type": "object", "properties": NUMBERS}}
TOOL["parameters"]["required"] = ["a", "b"]  # type: ignore[index]
TOOLS = [{"type": "function", "function": TOOL | {"return": {"type": "integer"}}}]
"""`add`, as transformers and TRL write it for a chat template."""


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, OnlineScorer]]:
    made = {
        name: scorer(name) for name in ("tiny-attributes", "exact-match", "tiny-tools", "tiny-genrm-json", "tiny-principle")
    }
    yield made
    for each in made.values():
        each.close()


@pytest.fixture(scope="module")
def addresses(models: Mapping[str, OnlineScorer]) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(listening(application([each]))) for name, each in models.items()}


@pytest.fixture
def seven(addresses: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """The reward of `ANSWERED`, by the client of the environment."""
    monkeypatch.setenv("ASSAY_URL", addresses["tiny-attributes"])
    default_client.cache_clear()
    yield default_client().rewards([{"messages": ANSWERED}])[0].require()
    default_client().close()
    default_client.cache_clear()


@pytest.fixture(scope="module")
def thinking() -> Iterator[tuple[str, float]]:
    """An endpoint that takes reasoning away, and the reward of `ANSWERED` there."""
    model = scorer("tiny-attributes", reasoning="strip")
    with listening(application([model], render=RenderSettings(reasoning=Reasoning.STRIP))) as address:
        with Client(address) as client:
            (reward,) = client.rewards([{"messages": ANSWERED}])
        yield address, reward.require()
    model.close()


@pytest.fixture
def by_reference(addresses: Mapping[str, str], seven: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a model that compares with a reference is asked."""
    default_client().close()
    monkeypatch.setenv("ASSAY_URL", addresses["exact-match"])
    default_client.cache_clear()


@pytest.fixture
def with_tools(addresses: Mapping[str, str], seven: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """The reward of `CALLED` with its tools, by a model whose template shows them, which is asked from here on."""
    default_client().close()
    monkeypatch.setenv("ASSAY_URL", addresses["tiny-tools"])
    default_client.cache_clear()
    conversations: list[dict[str, Any]] = [
        {"messages": [*QUESTION, *CALLED]},
        {"messages": [*QUESTION, *CALLED], "tools": TOOLS},
    ]
    without, shown = (reward.require() for reward in default_client().rewards(conversations))
    assert abs(without - shown) > 0.1
    return shown


def stub(monkeypatch: pytest.MonkeyPatch, **modules: Mapping[str, Any]) -> None:
    """Modules that aren't installed, by their names with `__` for dots, and the packages around them."""
    for name, members in modules.items():
        parts = name.split("__")
        for length in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:length]))
            module.__path__ = []
            monkeypatch.setitem(sys.modules, module.__name__, module)
        module.__dict__.update(members)


def load(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """An adapter, imported for this test alone."""
    monkeypatch.delitem(sys.modules, f"assay_client.{name}", raising=False)
    return importlib.import_module(f"assay_client.{name}")


class Trl:
    """What `GRPOTrainer` holds where it asks for rewards."""

    def __init__(self, *reward_funcs: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        from trl.trainer.utils import get_callable_name

        self.accelerator = SimpleNamespace(device=torch.device("cpu"), is_main_process=True)
        self.reward_funcs = reward_funcs
        self.reward_processing_classes = [None] * len(reward_funcs)
        self.reward_func_names = list(map(get_callable_name, reward_funcs))
        self.state, self.args = SimpleNamespace(global_step=0), SimpleNamespace(report_to=[])
        self.environments, self.async_loop = None, loop
        self.extra: dict[str, list[str]] = {}
        self._log_completion_extra, self._log_metric = self.extra.__setitem__, None
        self.multi_objective_aggregation, self.scale_rewards = "sum_then_normalize", "group"
        self.reward_weights = torch.ones(len(reward_funcs))

    def advantages(self, completions: Sequence[Any]) -> list[float]:
        """Those of a group, by TRL's own block of code between the rewards and the losses."""
        from trl import GRPOTrainer
        from trl.trainer.utils import nanstd

        count = len(completions)
        rewards = GRPOTrainer._calculate_rewards(
            self, [{"prompt": QUESTION}] * count, [QUESTION] * count, completions, [[7]] * count
        )
        source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
        block = source[
            source.index("        unscorable_mask =") : source.index("        # Slice to keep only the local part")
        ]
        names = {"self": self, "rewards_per_func": rewards, "num_generations": count, "device": "cpu"}
        names |= {"torch": torch, "nanstd": nanstd}
        exec(textwrap.dedent(block), names)
        advantages: list[float] = names["advantages"].tolist()
        return advantages


@pytest.mark.filterwarnings("ignore")
def test_trl_gets_numbers_and_none_from_both_kinds_of_functions(seven: float) -> None:
    from accelerate import PartialState
    from trl import GRPOTrainer
    from trl.trainer.utils import shutdown_event_loop_in_daemon, start_event_loop_in_daemon

    PartialState(cpu=True)
    thread, loop, _ = start_event_loop_in_daemon(name="test")
    try:
        trainer: Any = Trl(AssayReward(), AsyncAssayReward(name="async"), loop=loop)
        inputs = [{"prompt": QUESTION, "level": 1}] * 2
        completions = [[ANSWERED[-1]], [EMPTY[-1]]]
        rewards = GRPOTrainer._calculate_rewards(trainer, inputs, [QUESTION] * 2, completions, [[7], []])
    finally:
        shutdown_event_loop_in_daemon(thread, loop)
        loop.close()  # TRL doesn't: collected in a later test, it fails that
    assert rewards[0].tolist() == pytest.approx([seven, seven])
    assert rewards[1].isnan().all()
    assert trainer.reward_func_names == ["assay", "async"]
    assert trainer.extra == {"assay_reason": ["", "empty_content"], "async_reason": ["", "empty_content"]}


def is_brief(completions: Sequence[Any], **_: Any) -> list[float | None]:
    """Nothing to say of a completion that begins with "7 "."""
    return [None if turns[-1]["content"].startswith("7 ") else 1.0 for turns in completions]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("seven")
def test_trl_gives_a_completion_without_a_reward_no_advantage_whatever_stands_beside() -> None:
    from accelerate import PartialState

    PartialState(cpu=True)
    completions = [[{"role": "assistant", "content": text}] for text in ("7", "The answer is 7.", "7 it is", "")]
    alone = Trl(AssayReward()).advantages(completions)
    assert alone[-1] == 0.0
    assert Trl(AssayReward(), is_brief).advantages(completions)[-1] != 0.0, "TRL counts the missing number as 0"
    other = AssayReward(name="other", beside={is_brief: 0.5})
    for reward in (AssayReward(beside={is_brief: 0.5}), AssayReward(beside={other: 1.0}), AssayReward(beside={other: 1.0})):
        assert Trl(reward).advantages(completions)[-1] == 0.0
    numbers = AssayReward()([QUESTION] * 4, completions)
    sums = AssayReward(beside={is_brief: 0.5})([QUESTION] * 4, completions)
    more = [
        total - number
        for total, number in zip(sums[:3], numbers[:3], strict=True)
        if total is not None and number is not None
    ]
    assert more == pytest.approx([0.5, 0.5, 0.0])
    assert sums[3] is None


@pytest.mark.usefixtures("seven")
def test_trl_awaits_what_stands_beside_an_asynchronous_reward() -> None:
    async def slow(completions: Sequence[Any], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    reward = AsyncAssayReward(beside={slow: 1.0, is_brief: 1.0})
    completions = [[ANSWERED[-1]], [EMPTY[-1]]]
    (number, _) = AssayReward()([QUESTION] * 2, completions)
    assert number is not None
    assert asyncio.run(reward([QUESTION] * 2, completions)) == [pytest.approx(number + 2.0), None]


def test_trl_sends_the_tools_of_the_trainer_or_of_the_row(with_tools: float) -> None:
    batch = ([QUESTION], [CALLED])
    assert AssayReward(tools=[add])(*batch, tools=[None]) == pytest.approx([with_tools])
    assert AssayReward(tools=TOOLS)(*batch) == pytest.approx([with_tools])
    for tools in (TOOLS, json.dumps(TOOLS)):
        assert AssayReward()(*batch, tools=[tools]) == pytest.approx([with_tools])


def test_trl_forgets_no_tools_that_were_called(with_tools: float) -> None:
    for columns in ({}, {"tools": [None]}):
        with pytest.raises(ValueError, match="`tools=`"):
            AssayReward()([QUESTION], [CALLED], **columns)
    # A policy may write a call though there are no tools: that must not end the training.
    assert len(AssayReward()([QUESTION], [CALLED[:1]])) == 1
    assert AssayReward(tools=[add])([QUESTION], [CALLED]) == pytest.approx([with_tools])


def test_trl_trains_on_nothing_only_if_a_completion_may_be_why(addresses: Mapping[str, str], seven: float) -> None:
    prompts_and_answers = ([QUESTION] * 2, [[ANSWERED[-1]]] * 2)
    settings: list[tuple[str, dict[str, Any], str]] = [
        ("/v1", {}, "no_route"), ("", {"model": "typo"}, "model_not_found"),
    ]  # fmt: skip
    for path, arguments, reason in settings:
        with Client(addresses["tiny-attributes"] + path, **arguments) as client:
            with pytest.raises(NoReward, match=reason):
                AssayReward(client)(*prompts_and_answers)
            with pytest.raises(NoReward, match=reason):
                asyncio.run(AsyncAssayReward(client)(*prompts_and_answers))
    with pytest.raises(NoReward, match="closed"):
        AssayReward(client)(*prompts_and_answers)
    with pytest.raises(NoReward, match="no_such_field"):
        AssayReward(reference="answer")(*prompts_and_answers, answer=["7", "7"])
    assert AssayReward(reference="answer")(*prompts_and_answers, answer=["", "7"]) == [pytest.approx(seven), None]
    assert AssayReward()([QUESTION] * 2, [[EMPTY[-1]]] * 2) == [None, None]
    with Client(addresses["tiny-genrm-json"]) as client:
        with pytest.raises(NoReward, match="no_opponent"):
            AssayReward(client)([QUESTION], [[ANSWERED[-1]]])
        assert AssayReward(client, tools=[add])([QUESTION], [CALLED]) == [None]


@pytest.mark.parametrize("reward_class", [AssayReward, AsyncAssayReward])
def test_answers_to_one_prompt_are_compared(reward_class: Any, addresses: Mapping[str, str]) -> None:
    other = [{"role": "user", "content": "What is 2 + 2?"}]
    texts = ["7", "9", "4", "8", "seven"]
    prompts = [QUESTION, QUESTION, other, QUESTION, other]
    with Client(addresses["tiny-genrm-json"]) as client:
        together = [{"messages": QUESTION, "responses": ["7", "9", "8"]}, {"messages": other, "responses": ["4", "seven"]}]
        expected = [reward.require() for reward in client.rewards(together)]
        rewards = reward_class(client)(prompts, [[{"role": "assistant", "content": text}] for text in texts])
        rewards = asyncio.run(rewards) if inspect.iscoroutine(rewards) else rewards
        assert rewards == pytest.approx([expected[place] for place in (0, 1, 3, 2, 4)])


@pytest.mark.usefixtures("with_tools")
def test_only_answers_of_the_assistants_are_responses() -> None:
    tool = [CALLED[0], {"role": "tool", "content": "7"}]  # TRL stopped after the call
    begun = [*QUESTION, {"role": "assistant", "content": "It"}]
    rewards = AssayReward(tools=[add])([QUESTION, begun, QUESTION], [tool, [ANSWERED[-1]], [ANSWERED[-1]]])
    (expected,) = default_client().rewards([{"messages": [*begun, ANSWERED[-1]], "tools": TOOLS}])
    assert rewards[:2] == [None, expected.value]
    assert rewards[2] is not None


def test_principles_go_with_every_conversation(addresses: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    prompts_and_answers = ([QUESTION], [[ANSWERED[-1]]])
    with Client(addresses["tiny-principle"]) as client, pytest.raises(NoReward, match="no_principle"):
        AssayReward(client)(*prompts_and_answers)
    principles = ["The answer is right."]
    with Client(addresses["tiny-principle"], principles=principles) as client:
        (expected,) = client.rewards([{"messages": ANSWERED, "principles": principles}])
        assert AssayReward(client)(*prompts_and_answers) == [expected.require()]
    with pytest.raises(ValueError, match="a list of texts"):
        Client(addresses["tiny-principle"], principles=principles[0])
    monkeypatch.setenv("ASSAY_PRINCIPLE", principles[0])
    with Client(addresses["tiny-principle"]) as client:
        assert AssayReward(client)(*prompts_and_answers) == [expected.require()]


@pytest.mark.usefixtures("seven")
def test_a_picture_is_refused_by_the_endpoint() -> None:
    parts = [{"type": "image", "image": object()}, {"type": "text", "text": "What is it?"}]
    columns: dict[str, list[str]] = {}
    seen = [{"role": "user", "content": parts}]
    rewards = AssayReward()([seen, QUESTION], [[ANSWERED[-1]]] * 2, log_extra=columns.__setitem__)
    assert rewards[0] is None
    assert columns["assay_reason"] == ["content_not_text", ""]


CUT = "We need to add 3 and 4. Alternatively"
ENDED = "Add them.\n</think>\n\n7"
OPENED = "<|im_start|>assistant\n<think>\n"


def test_the_mark_that_a_template_wrote_comes_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*_BEGINS} == {mark.begin for mark in MARKS if mark.prefilled}
    for mark in _BEGINS:
        assert with_opening(CUT, f"What?{mark}\n\n") == f"{mark}\n\n{CUT}"
        assert with_opening(f"\n{mark}{CUT}", f"What?{mark}\n") == f"\n{mark}{CUT}"
    for prompt in (None, QUESTION, "What?", "<think>\n\n</think>\n\n"):
        assert with_opening(CUT, prompt) == CUT
    monkeypatch.setenv("ASSAY_OPENING", "<hm>\n")
    assert with_opening(CUT) == f"<hm>\n{CUT}"
    assert with_opening(f"<hm>{CUT}") == f"<hm>{CUT}"
    assert with_opening(CUT, "What?<hm>") == f"<hm>{CUT}"
    assert with_opening(CUT, "What?<think>") == f"<think>{CUT}"


@pytest.mark.parametrize("is_set", [False, True])
def test_reasoning_that_was_cut_off_is_no_answer(
    thinking: tuple[str, float], verl: Any, is_set: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the prompt where the trainer hands it over, else by the setting."""
    address, seven = thinking
    monkeypatch.setenv("ASSAY_URL", address)
    default_client.cache_clear()
    stub(monkeypatch, skyrl_gym__envs__base_text_env={"BaseTextEnv": BaseTextEnv, "BaseTextEnvStepOutput": dict})
    members = {"EnvironmentInterface": object, "EnvironmentReturn": EnvironmentReturn}
    stub(monkeypatch, nemo_rl__environments__interfaces=members)
    skyrl = load(monkeypatch, "skyrl").AssayEnv()
    skyrl.init(QUESTION)
    nemo = load(monkeypatch, "nemo_rl").AssayEnvironment.__ray_metadata__.modified_class({"url": address})
    custom_rm = importlib.import_module("assay_client.slime").custom_rm

    def by_verl(text: str) -> float:
        data = VerlData(text)
        data.batch = {"prompts": [OPENED]}
        manager = verl.AssayRewardManager(config=verl_settings(), tokenizer=SimpleNamespace(decode=str), compute_score=None)
        reward: float = asyncio.run(manager.run_single(data))["reward_score"]
        return reward

    def by_slime(text: str) -> float:
        sample = slime_sample(text, prompt=OPENED, metadata={"messages": QUESTION})
        reward: float = asyncio.run(custom_rm(slime_args(), sample))
        return reward

    def by_nemo(text: str) -> float:
        log = [{"role": "user", "content": OPENED}, {"role": "assistant", "content": text}]
        reward: float = nemo.step([log], [{"messages": QUESTION}]).rewards.item()
        return reward

    def by_trl(text: str) -> float:
        columns: dict[str, list[str]] = {}
        turn = {"role": "assistant", "content": text}
        whole = {"role": "assistant", "content": "7", "reasoning_content": "Add them."}
        rewards = AssayReward()([QUESTION] * 2, [[turn], [whole]], log_extra=columns.__setitem__)
        assert rewards[1] == pytest.approx(seven)
        if rewards[0] is None:
            raise NoReward(columns["assay_reason"][0])
        return rewards[0]

    by_prompt: list[Any] = [by_verl, by_slime, by_nemo]
    by_setting: list[Any] = [by_trl, lambda text: skyrl.step(text)["reward"]]
    if is_set:
        monkeypatch.setenv("ASSAY_OPENING", "<think>\n")
    for score in by_setting if is_set else by_prompt:
        assert score(ENDED) == score(f"<think>\n{ENDED}") == pytest.approx(seven)
        for text in (CUT, f"<think>{CUT}"):
            with pytest.raises(NoReward, match="reasoning"):
                score(text)
    default_client().close()
    default_client.cache_clear()
    nemo._client.close()


@pytest.mark.usefixtures("by_reference")
def test_trl_sends_the_columns_that_it_is_told_to() -> None:
    reward = AssayReward(reference="answer")
    assert reward([QUESTION, QUESTION], [[ANSWERED[-1]]] * 2, answer=["7", "8"]) == [1.0, 0.0]
    with pytest.raises(KeyError):
        reward([QUESTION], [[ANSWERED[-1]]])
    with pytest.raises(TypeError, match="conversational"):
        reward(["What is 3 + 4?"], ["7"], answer=["7"])


class NaiveRewardManager:
    """As verl declares it, but for its tokens."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any) -> None:
        self.compute_score, self.tokenizer = compute_score, tokenizer

    async def run_single(self, data: Any) -> dict[str, Any]:
        info = data.non_tensor_batch["extra_info"][0] | {"num_turns": data.non_tensor_batch["__num_turns__"][0]}
        call = {"data_source": "gsm8k", "solution_str": data[0], "ground_truth": "7", "extra_info": info}
        return {"reward_score": await self.compute_score(**call)}


class VerlData(list[str]):
    """Responses with what verl keeps beside its tensors."""

    def __init__(self, *responses: str, **fields: Any) -> None:
        super().__init__(responses)
        fields = {"extra_info": {"index": 0}, "__num_turns__": 2, "raw_prompt": QUESTION} | fields
        self.non_tensor_batch = {name: [value] for name, value in fields.items() if value is not None}
        self.batch = {"prompts": ["a rendered prompt"]}  # tokens that its tokenizer takes for characters


class Settings(dict[str, Any]):
    """OmegaConf's way to read them."""

    __getattr__ = dict.__getitem__


def verl_settings(**changes: Any) -> Settings:
    turns = Settings(tool_config_path=None, function_tool_path=None) | changes.pop("multi_turn", {})
    rollout = Settings(rollout=Settings(multi_turn=Settings(turns)))
    return Settings(actor_rollout_ref=rollout, reward=Settings(custom_reward_function=Settings({"path": None} | changes)))


@pytest.fixture
def verl(monkeypatch: pytest.MonkeyPatch) -> Any:
    stub(monkeypatch, verl__experimental__reward_loop__reward_manager__naive={"NaiveRewardManager": NaiveRewardManager})
    return load(monkeypatch, "verl")


@pytest.mark.usefixtures("by_reference")
def test_verls_manager_reads_the_prompt_beside_the_other_fields(verl: Any) -> None:
    async def own_rules(**_: Any) -> float:
        return 9.0

    def score(config: Settings, data: VerlData) -> float:
        tokenizer = SimpleNamespace(decode=str)
        manager = verl.AssayRewardManager(config=config, tokenizer=tokenizer, compute_score=own_rules)
        reward: float = asyncio.run(manager.run_single(data))["reward_score"]
        return reward

    compared = verl_settings(reward_kwargs={"reference": True})
    assert [score(compared, VerlData(text)) for text in ("7", "8")] == [1.0, 0.0]
    assert score(verl_settings(path="of the user's"), VerlData("7")) == 9.0
    refused = {
        "several_turns": (VerlData("7", __num_turns__=4), VerlData("7", "8")),
        "unknown_turns": (VerlData("7", __num_turns__=0),),
        "no_messages": (VerlData("7", raw_prompt=None),),
    }
    for reason, several in refused.items():
        for data in several:
            with pytest.raises(NoReward, match=reason):
                score(compared, data)
    for name in ("tool_config_path", "function_tool_path"):
        with pytest.raises(ValueError, match="without the tools"):
            score(verl_settings(multi_turn={name: "tools.yaml"}), VerlData("7"))


def ask_verl(verl: Any, answer: str, extra_info: dict[str, Any], **reward_kwargs: Any) -> float:
    """As `NaiveRewardManager` and `get_custom_reward_fn` of verl 0.9.1 do."""
    call = {"data_source": "gsm8k", "solution_str": answer, "ground_truth": "7", "extra_info": extra_info}
    reward: float = asyncio.run(verl.compute_score(**{**call, **reward_kwargs}))
    return reward


def test_verl_gets_a_number_or_an_exception(seven: float, verl: Any) -> None:
    extra = {"num_turns": 2, "rollout_reward_scores": {}, "raw_prompt": QUESTION}
    assert ask_verl(verl, "7", extra) == pytest.approx(seven)
    question = {"num_turns": 2, "question": "What is 3 + 4?"}
    assert ask_verl(verl, "7", question, prompt_key="question") == pytest.approx(seven)
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("", extra, "empty_content"), ("7", extra | {"num_turns": 4}, "several_turns"),
        ("7", extra | {"num_turns": None}, "unknown_turns"), ("7", {"raw_prompt": QUESTION}, "unknown_turns"),
        ("7", {"num_turns": 2}, "no_messages"), ("7", {"num_turns": 2, "raw_prompt": None}, "no_messages"),
    ]  # fmt: skip
    for answer, info, reason in cases:
        with pytest.raises(NoReward, match=reason):
            ask_verl(verl, answer, info)


@pytest.mark.usefixtures("by_reference")
def test_verl_sends_the_ground_truth_if_told_to(verl: Any) -> None:
    extra = {"num_turns": 2, "raw_prompt": QUESTION}
    assert [ask_verl(verl, text, extra, reference=True) for text in ("7", "8")] == [1.0, 0.0]


def test_openrlhf_gets_tensors_or_an_exception(seven: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `SingleTurnAgentExecutor` of OpenRLHF 0.11.2 does: the file is loaded, and called in threads with one text each."""
    monkeypatch.setenv("ASSAY_TEMPLATE", "chatml")
    file = tmp_path / "reward.py"
    file.write_text("from assay_client.openrlhf import reward_func\n")
    spec = importlib.util.spec_from_file_location("reward_func", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    prompt = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"

    async def ask(*answers: str) -> list[Any]:
        calls = (asyncio.to_thread(module.reward_func, [f"{prompt}{text}<|im_end|>"], [prompt], ["7"]) for text in answers)
        return await asyncio.gather(*calls, return_exceptions=True)

    well, empty = asyncio.run(ask("7", ""))
    assert torch.tensor([well["rewards"]]).tolist() == pytest.approx([seven])
    assert well["scores"] is well["rewards"]
    assert isinstance(empty, NoReward)
    assert empty.reason == "empty_content"
    adapter = importlib.import_module("assay_client.openrlhf")
    adapter._client().close()
    adapter._client.cache_clear()
    address = adapter.remote_rm_url("http://host:8000", "chatml")
    assert address == "http://host:8000/get_reward?from_template=chatml"


class BaseTextEnv:
    """As skyrl-gym declares it."""

    def __init__(self) -> None:
        self.turns = 0


def test_skyrl_gets_a_number_or_an_exception(seven: float, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, skyrl_gym__envs__base_text_env={"BaseTextEnv": BaseTextEnv, "BaseTextEnvStepOutput": dict})
    extras = {"reward_spec": {"ground_truth": "7"}, "max_turns": 1}
    env = load(monkeypatch, "skyrl").AssayEnv(env_config={}, extras=extras)
    assert env.init(QUESTION) == (QUESTION, {})
    step = env.step("7")
    assert step["reward"] == pytest.approx(seven)
    assert (step["observations"], step["done"], len(step["metadata"]["scores"])) == ([], True, 5)
    with pytest.raises(NoReward, match="empty_content"):
        env.step("")


def slime_sample(response: str, **changes: Any) -> Any:
    sample: dict[str, Any] = {"prompt": QUESTION, "response": response, "label": None, "metadata": {}, "loss_mask": None}
    sample["multimodal_inputs"] = None
    return SimpleNamespace(**{**sample, **changes})


def slime_args(**changes: Any) -> Any:
    args = {"rollout_skip_special_tokens": True, "custom_generate_function_path": None}
    return SimpleNamespace(**{**args, "mask_offpolicy_in_partial_rollout": False, **changes})


def test_slime_gets_a_number_a_list_or_an_exception(seven: float) -> None:
    custom_rm = importlib.import_module("assay_client.slime").custom_rm
    args = slime_args()
    assert asyncio.run(custom_rm(args, slime_sample("7"))) == pytest.approx(seven)
    rendered = slime_sample("7", prompt="<|im_start|>user ...", metadata={"messages": QUESTION})
    assert asyncio.run(custom_rm(args, [rendered, slime_sample("7")])) == pytest.approx([seven, seven])
    with pytest.raises(NoReward, match="empty_content"):
        asyncio.run(custom_rm(args, [slime_sample("7"), slime_sample("")]))
    with pytest.raises(ValueError, match="is a text"):
        asyncio.run(custom_rm(args, slime_sample("7", prompt="<|im_start|>user ...")))
    with pytest.raises(ValueError, match="special tokens"):
        asyncio.run(custom_rm(slime_args(rollout_skip_special_tokens=False), slime_sample("7")))


def test_slime_gets_no_number_for_a_text_with_turns_of_others(seven: float) -> None:
    custom_rm = importlib.import_module("assay_client.slime").custom_rm
    several, resumed = slime_sample("7", loss_mask=[1, 0, 1]), slime_sample("7", loss_mask=[0, 1])
    built_in, custom = ({"custom_generate_function_path": path} for path in (None, "generate.py"))
    is_masked = {"mask_offpolicy_in_partial_rollout": True}
    for args, sample in ((built_in, several), (custom, several), (custom | is_masked, resumed)):
        with pytest.raises(NoReward, match="several_turns"):
            asyncio.run(custom_rm(slime_args(**args), sample))
    assert asyncio.run(custom_rm(slime_args(**is_masked), resumed)) == pytest.approx(seven)
    assert asyncio.run(custom_rm(slime_args(), slime_sample("7", loss_mask=[1, 1]))) == pytest.approx(seven)


def test_slime_sends_the_tools_of_the_prompt(with_tools: float) -> None:
    custom_rm = importlib.import_module("assay_client.slime").custom_rm
    metadata = {"messages": [*QUESTION, *CALLED[:-1]], "tools": TOOLS}
    assert asyncio.run(custom_rm(slime_args(), slime_sample("7", metadata=metadata))) == pytest.approx(with_tools)


def test_slime_refuses_what_no_text_shows_and_tools_that_nobody_knows(with_tools: float) -> None:
    custom_rm = importlib.import_module("assay_client.slime").custom_rm
    for media, metadata, error in (
        ({"images": [object()], "videos": None}, {}, NoReward),
        (None, {"messages": [*QUESTION, *CALLED[:-1]]}, ValueError),
    ):
        with pytest.raises(error, match=r"content_not_text|--tool-key"):
            asyncio.run(custom_rm(slime_args(), slime_sample("7", multimodal_inputs=media, metadata=metadata)))
    text = slime_sample("7", multimodal_inputs={"images": None, "videos": []}, metadata={"tools": TOOLS})
    assert isinstance(asyncio.run(custom_rm(slime_args(), text)), float)
    none = slime_sample("7", metadata={"messages": [*QUESTION, *CALLED[:-1]], "tools": []})
    assert asyncio.run(custom_rm(slime_args(), none)) != pytest.approx(with_tools)


def test_slime_compares_a_group(addresses: Mapping[str, str], seven: float, monkeypatch: pytest.MonkeyPatch) -> None:
    custom_rm = importlib.import_module("assay_client.slime").custom_rm
    default_client().close()
    monkeypatch.setenv("ASSAY_URL", addresses["tiny-genrm-json"])
    default_client.cache_clear()
    texts = ["7", "9", "8"]
    expected = [reward.require() for reward in default_client().rewards([{"messages": QUESTION, "responses": texts}])]
    assert asyncio.run(custom_rm(slime_args(), list(map(slime_sample, texts)))) == pytest.approx(expected)
    with pytest.raises(NoReward, match="no_opponent"):
        asyncio.run(custom_rm(slime_args(), slime_sample("7")))


class EnvironmentReturn(NamedTuple):
    """As NeMo-RL declares it."""

    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[None]
    rewards: torch.Tensor
    terminateds: torch.Tensor
    answers: list[str]


def test_nemo_rl_gets_a_tensor_or_an_exception(
    seven: float, addresses: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {"EnvironmentInterface": object, "EnvironmentReturn": EnvironmentReturn}
    stub(monkeypatch, nemo_rl__environments__interfaces=members)
    actor = load(monkeypatch, "nemo_rl").AssayEnvironment
    assert actor._default_options["max_concurrency"] == 256
    env = actor.__ray_metadata__.modified_class({"url": addresses["tiny-attributes"]})
    rendered = {"role": "user", "content": "<|im_start|>user ..."}
    done = env.step([[rendered, ANSWERED[-1]]] * 2, [{"messages": QUESTION}] * 2)
    assert done.rewards.tolist() == pytest.approx([seven] * 2)
    assert (done.terminateds.tolist(), done.answers, len(done.observations)) == ([True, True], ["7", "7"], 2)
    with pytest.raises(NoReward, match="empty_content"):
        env.step([[rendered, EMPTY[-1]]], [{"messages": QUESTION}])
    with pytest.raises(KeyError):
        env.step([[rendered, ANSWERED[-1]]], [{}])
    env._client.close()


class Params(BaseModel, extra="allow"):
    """OpenAI's, of which Gym declares all fields."""


class BaseVerifyRequest(BaseModel):
    """As NeMo-Gym declares it, and those below."""

    responses_create_params: Params
    response: Params


class BaseMultiRewardVerifyResponse(BaseVerifyRequest):
    reward: float
    reward_components: dict[str, float]


def test_gym_gets_a_number_or_a_mask(seven: float, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {each.__name__: each for each in (BaseVerifyRequest, BaseMultiRewardVerifyResponse)}
    stub(monkeypatch, nemo_gym__base_resources_server=declared | {"SimpleResourcesServer": object})
    server = load(monkeypatch, "nemo_gym").AssayServer()

    def verify(prompt: Any, *output: dict[str, Any]) -> dict[str, Any]:
        body = {"responses_create_params": {"input": prompt}, "response": {"output": output}}
        answer: dict[str, Any] = asyncio.run(server.verify(BaseVerifyRequest.model_validate(body))).model_dump()
        return answer

    def reply(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    for prompt in (QUESTION, "What is 3 + 4?"):
        well = verify(prompt, thought, reply("7"))
        assert well["reward"] == sum(well["reward_components"].values()) == pytest.approx(seven)
        assert (well["mask_sample"], well["failure_kind"], well["failure_reason"]) == (False, None, None)
    assert well["response"]["output"][1] == reply("7")
    masked = verify(QUESTION, reply(""))
    assert (masked["mask_sample"], masked["failure_kind"]) == (True, "assay:empty_content")
    assert masked["instance_config"] == {"mask_sample": True}
    # As the endpoint's `/verify`: Gym's collector looks at nothing else.
    failure = {name: value for name, value in masked.items() if name.startswith("_ng_")}
    error = {"_ng_failure_judge_error": "assay:empty_content"}
    assert failure == {"_ng_failure_class": "judge_failed", "_ng_failure_terminal": True} | error
    assert not [name for name in well if name.startswith("_ng_")]
    declined = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    seen: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": "x"}]}
    ]
    for prompt, output in ((QUESTION, [declined]), (QUESTION, [reply("7"), declined]), (seen, [reply("7")])):
        masked = verify(prompt, *output)
        assert (masked["mask_sample"], masked["failure_kind"]) == (True, "assay:content_not_text")
    function = {"name": "add", "arguments": '{"a": 3, "b": 4}'}
    call = {"type": "function_call", "call_id": "1", **function}
    called = verify(QUESTION, call, {"type": "function_call_output", "call_id": "1", "output": "7"}, reply("7"))
    in_chat = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    turns = [*QUESTION, in_chat, {"role": "tool", "tool_call_id": "1", "content": "7"}, ANSWERED[-1]]
    (expected,) = default_client().rewards([{"messages": turns}])
    assert (called["reward"], called["mask_sample"]) == (expected.value or 0.0, expected.value is None)
    assert called["failure_kind"] == (expected.reason and f"assay:{expected.reason}")


def test_a_rollout_is_the_conversation_that_the_endpoint_reads() -> None:
    tool = {"type": "function", "name": "add", "description": None, "parameters": {"type": "object", "properties": {}}}
    calls = [{"type": "function_call", "call_id": at, "name": "add", "arguments": '{"a": 3}'} for at in "12"]
    answers = [{"type": "function_call_output", "call_id": at, "output": "7"} for at in "12"]
    steps = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]} for text in "789"]
    rollouts: list[tuple[dict[str, Any], list[Any]]] = [
        ({"input": "What?", "instructions": "Be brief.", "tools": [tool]}, [steps[0], *calls, *answers, steps[1], steps[2]]),
        ({"input": [{"role": "system", "content": "S"}, *QUESTION], "instructions": "S", "tools": []}, [steps[0]]),
        ({"input": [*QUESTION, steps[0], calls[0], answers[0]], "instructions": None}, [steps[1]]),
    ]
    for prompt, output in rollouts:
        (truth,) = SHAPES["gym-rollout"].read({"responses_create_params": prompt, "response": {"output": output}}).requests
        read = _parse(Conversation.model_validate(read_rollout(prompt, output))).request
        assert read is not None
        assert (read.context, read.tools) == (truth.context, truth.tools)
        assert read.responses[0].content == truth.responses[0].content


def load_verifiers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """verifiers' own tasks and messages, without the clients and sandboxes that the package imports."""
    spec = importlib.util.find_spec("verifiers")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    stub(monkeypatch, pydantic_config={"BaseConfig": BaseModel})
    for name in ("", ".v1", ".v1.configs", ".v1.dialects", ".v1.utils"):
        package = ModuleType(f"verifiers{name}")
        package.__path__ = [str(Path(folder, *name.split(".")))]
        monkeypatch.setitem(sys.modules, package.__name__, package)
    stubs: dict[str, dict[str, Any]] = {
        "configs.harness": {"SkillSource": str},
        "configs.judge": {"Judges": list, "check_judges": lambda judges: None, "resolve_judges": None},
        "state": {"StateT": TypeVar("StateT", default=object)},
        "utils.artifacts": {"MAX_ARTIFACT_BYTES": 1, "Artifact": str},
        "utils.loaders": {"load_judge": None, "load_plugged_fn": None},
    }
    for name, members in stubs.items():
        module = ModuleType(f"verifiers.v1.{name}")
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return [importlib.import_module(f"verifiers.v1.{name}") for name in ("task", "types", "utils.decorators")]


def test_verifiers_gets_a_number_or_its_error(seven: float, monkeypatch: pytest.MonkeyPatch) -> None:
    task, types, decorators = load_verifiers(monkeypatch)
    adapter = load(monkeypatch, "verifiers")

    class Sums(task.Task):  # type: ignore[name-defined]
        @decorators.reward
        async def assay(self, trace: Any) -> float:
            number: float = await adapter.reward(self.data, trace)
            return number

    def score(answer: str) -> dict[str, float]:
        rewards: dict[str, float] = {}
        turns = [types.UserMessage(content="What is 3 + 4?"), types.AssistantMessage(content=answer)]
        branch = SimpleNamespace(messages=turns, tools=[])
        trace = SimpleNamespace(branches=[branch], metrics={}, rewards=rewards)
        trace.record_reward = lambda name, value, weight: rewards.__setitem__(name, value * weight)
        asyncio.run(Sums(task.TaskData(prompt="What is 3 + 4?")).score(trace))
        return rewards

    assert score("7") == {"assay": pytest.approx(seven)}
    with pytest.raises(Exception, match="empty_content") as raised:
        score("")
    assert type(raised.value).__name__ == "TaskError"


def test_verifiers_sends_the_tools_of_the_branch(with_tools: float, monkeypatch: pytest.MonkeyPatch) -> None:
    _, types, _ = load_verifiers(monkeypatch)
    adapter = load(monkeypatch, "verifiers")
    call = types.ToolCall(id="1", name="add", arguments="{}")
    turns = [
        types.UserMessage(content="What is 3 + 4?"), types.AssistantMessage(content="", tool_calls=[call]),
        types.ToolMessage(tool_call_id="1", content="7"), types.AssistantMessage(content="7"),
    ]  # fmt: skip

    def ask(**changes: Any) -> float:
        branch = SimpleNamespace(messages=turns, tools=[types.Tool.model_validate(TOOL | changes)])
        number: float = asyncio.run(adapter.reward(None, SimpleNamespace(branches=[SimpleNamespace(), branch])))
        return number

    shown = [{"type": "function", "function": TOOL}]
    (expected,) = default_client().rewards([{"messages": [*QUESTION, *CALLED], "tools": shown}])
    assert ask() == pytest.approx(expected.require())
    assert ask(strict=True, description="") != pytest.approx(with_tools)
    for change in ({"type": "custom"}, {"namespace": "math"}):
        with pytest.raises(NoReward, match="tool_kind"):
            ask(**change)


def test_a_client_may_be_given(addresses: Mapping[str, str]) -> None:
    with Client(addresses["exact-match"]) as client:
        reward = AssayReward(client, reference="answer")
        assert reward([QUESTION], [[ANSWERED[-1]]], answer=["7"]) == [1.0]
