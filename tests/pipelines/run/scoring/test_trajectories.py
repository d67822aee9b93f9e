"""Agents' trajectories, scored: a conversation has the same reward in every form, at the step that the file's ids name."""

import shutil
from pathlib import Path

import pytest

from pipelines.run.scoring.score_corpus import score
from tests.conftest import REPOSITORY
from tests.support.corpora import lines, scored, settings, write
from tests.support.trajectories import FORMS

TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start|>' ~ message.role ~ '\\n\\n' ~ (message.content or '') }}
    {%- if loop.first and tools %}{{- '\\n' ~ tools | tojson }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n' ~ call.function.name ~ ' ' ~ call.function.arguments | tojson }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}"""


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("engine", ["fake", pytest.param("vllm", marks=pytest.mark.long)])
def test_a_conversation_has_the_same_rewards_in_every_form(tmp_path: Path, engine: str) -> None:
    model = shutil.copytree(REPOSITORY / "tiny_models" / "scalar", tmp_path / "model")
    (model / "chat_template.jinja").write_text(TEMPLATE)
    corpus = write(tmp_path / "trajectories.jsonl", lines(row for row, _ in FORMS.values()))
    options = {"engine": engine, "model": str(model), "family": "scalar", "format": "mixed", "turns": "all", "prefix": "a_"}
    score(settings(corpus, tmp_path / "out", **options))
    rows = scored(tmp_path / "out")
    assert [row["a_response_name"] for row in rows] == [name for _, names in FORMS.values() for name in names]
    first, last = rows[::2], rows[1::2]
    for turns in (first, last):
        assert len({row["a_prompt_hash"] for row in turns}) == 1
        assert [row["a_reward"] for row in turns] == pytest.approx([turns[0]["a_reward"]] * len(FORMS), abs=1e-5)
    assert abs(first[0]["a_reward"] - last[0]["a_reward"]) > 1e-3
