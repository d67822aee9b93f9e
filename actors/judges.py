"""Generative judges: reward models that write before they score. What is known of them; their text isn't read yet.

Sources are the model cards; where a card doesn't say, neither does the entry.
"""

from dataclasses import dataclass

from actors.family import KnownModel

NOT_READ = "a judge that writes before it scores, and this version of Assay reads reward heads alone"


@dataclass(frozen=True, slots=True)
class Judge:
    """How a kind of judge is asked and read, for people."""

    models: tuple[KnownModel, ...]
    summary: str
    asked: str
    read_at: str
    range: str
    order_matters: bool
    source: str


JUDGES = (
    Judge(
        (
            KnownModel(
                "nvidia/Qwen3-Nemotron-32B-GenRM-Principle", "", "NVIDIA Open Model License", 8192, "arXiv 2509.21319"
            ),
        ),
        "writes, then says Yes or No to a principle",
        "its chat template with a last turn of the role `principle`, and a generation prompt",
        "log-probability of ' Yes' (7414) less that of ' No' (2308) at the verdict, each at least -50",
        "-50 to 50, above 0 where the principle is fulfilled",
        False,
        "nvidia/Qwen3-Nemotron-32B-GenRM-Principle model card",
    ),
    Judge(
        (
            KnownModel(
                "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM*",
                "English, and -Multilingual",
                "NVIDIA Open Model License",
                card="arXiv 2505.11475",
            ),
        ),
        "writes, then grades one response or two, and ranks two",
        "its chat template with the roles `response_1` and `response_2` after the user's last turn",
        r"\boxed{} after </think>: a grade for each response, and a ranking",
        "grades 1 to 5, ranking 1 (the first is much better) to 6",
        True,
        "nvidia/Llama-3_3-Nemotron-Super-49B-GenRM-Multilingual model card",
    ),
    Judge(
        (
            KnownModel("nvidia/Qwen3-Nemotron-235B-A22B-GenRM*", "and -2603, which takes a principle"),
            KnownModel("nvidia/Nemotron-3-*-GenRM*", "takes a principle"),
        ),
        "writes, then grades and ranks two responses as JSON",
        "its chat template with the roles `response_1` and `response_2`, after `principle` where it takes one",
        "JSON after the reasoning: score_1, score_2, ranking",
        "grades 1 to 5, ranking 1 (the first is much better) to 6",
        True,
        "NeMo-Gym, genrm_compare",
    ),
    Judge(
        (KnownModel("gaotang/RM-R1-*", "distilled, and instruct", card="arXiv 2505.02387"),),
        "writes, then names the better of two responses",
        "one user turn with both responses; the instruct ones with a system turn of their own",
        "[[A]] or [[B]] in the last <answer>",
        "A or B",
        True,
        "RM-R1-UIUC/RM-R1, its evaluation script",
    ),
    Judge(
        (KnownModel("WisdomShell/RewardAnything-8B-v1", "", card="arXiv 2506.03637"),),
        "writes, then grades and ranks any number of responses by a principle, as JSON",
        "its own system turn, then JSON with principle, prompt and responses under masked names",
        "JSON after </think>: scores, best-to-worst",
        "grades 1 to 5",
        True,
        "zhuohaoyu/RewardAnything, rewardanything/processing.py",
    ),
    Judge(
        (KnownModel("rubricreward/R3-*", "as full models, and as LoRA", card="arXiv 2505.13388"),),
        "writes, then grades by a rubric, as JSON",
        "one user turn with task, input, one response or two, and the rubric",
        "`score` in the JSON after </think>",
        "1 to 5, Response 1 or 2, or true and false, as the rubric has it",
        True,
        "rubricreward/r3, src/dataset_gen/rubrics_gen/prompts.py",
    ),
)


def judge_known(model: str) -> tuple[Judge, KnownModel] | None:
    """A judge by its id."""
    return next(((judge, known) for judge in JUDGES for known in judge.models if known.matches(model)), None)
