"""What commands print with --json is what its page says, to the last key."""

import json
from pathlib import Path

import jsonschema
import pytest

from docs.generate.command_line import commands
from docs.generate.json_outputs import outputs, schemas
from tests.support.commands import sets
from tests.support.corpora import lines, rows, write
from tests.support.local_ray import run_here

FAKE = ("--engine", "fake")
ATTRIBUTES = ("--model", "tiny-attributes", *FAKE)
POLICY = ("--policy", "tiny-policy", "--set", "policy.policy_max_tokens=16")


def check(command: str, *words: object, code: int = 0) -> None:
    """Run a command with --json: what it prints has the keys and the types of one of its documents."""
    done = run_here(*command.split(), *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert next(iter(document)) == "assay_json"
    errors = [list(jsonschema.Draft202012Validator(schema).iter_errors(document)) for schema in schemas(command)]
    assert [] in errors, f"{command}: " + "; ".join(
        f"{error.json_path}: {error.message}" for each in errors for error in each
    )


def test_every_command_with_json_is_on_its_page() -> None:
    printing = {name for name, command in commands().items() if any("--json" in each.opts for each in command.params)}
    assert printing - {"run"} == {command for output in outputs() for command in output.commands}


@pytest.mark.usefixtures("local_ray")
def test_documents_are_as_their_page_says(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", lines(rows(40)) + b"broken\n")
    scored, second = tmp_path / "scored", tmp_path / "second"
    two = ("--model", "tiny-attributes", "--model", "tiny-scalar")
    check("score", corpus, scored, *ATTRIBUTES)
    check("score", corpus, second, "--model", "tiny-scalar", *FAKE)
    check("ensemble", corpus, tmp_path / "ensemble", "--model", "tiny-attributes", "--model", "tiny-scalar", *FAKE, code=4)
    check("cascade", corpus, tmp_path / "cascade", *two, "--where", "reward >= 0", *sets("engine.engine=fake"))
    check("label-sample", scored, tmp_path / "labels.jsonl", "-n", 10)
    check("filter", scored, tmp_path / "kept", "--where", "reward >= 0")
    check("filter", scored, "--top-fraction", 0.5)
    check("export", scored, tmp_path / "sft", "--for", "sft", "--set", "fake_ok=true")
    check("report", scored, "--out", tmp_path / "report.html")
    check("diff", scored, second, "--top-fraction", 0.5)
    check("diff", scored, second, "--set", "gates.max_status_changes=0", "--set", "gates.max_move=0", code=5)
    check("status", scored)
    check("status", tmp_path / "kept")
    check("verify", scored, "--sample", 5)
    check("retry", scored)
    check("plan", corpus, "--model", "tiny-genrm", "--tokens-per-s", 500, "--set", "bill.written_per_s=50")
    check("plan", "--model", "Skywork/Skywork-Reward-V2-Llama-3.1-8B")
    check("check", "tiny-scalar", *FAKE, code=2)
    check("certify", "tiny-attributes", "--on", corpus, "--out", tmp_path / "certificate", *FAKE)
    check("models explain", "tiny-genrm")
    check("models explain", "nvidia/Llama-3.3-Nemotron-70B-Reward")


@pytest.mark.usefixtures("local_ray")
def test_documents_of_candidates_and_evaluations_are_as_their_page_says(tmp_path: Path) -> None:
    prompts = write(tmp_path / "prompts.jsonl", lines([{"prompt": f"What is {number} + 1?"} for number in range(4)]))
    judge = ("--judge", "tiny-attributes", *FAKE, *POLICY)
    check("sample", prompts, tmp_path / "drawn", *judge, "-n", 2)
    check("choose", tmp_path / "drawn", tmp_path / "best", "--strategy", "best")
    check("pairs", tmp_path / "drawn", tmp_path / "pairs", "--for", "trl", "--set", "fake_ok=true")
    check("refine", prompts, tmp_path / "refined", "--select", "tiny-attributes", *FAKE, *POLICY)
    pairs = [{"prompt": f"{n} + 1?", "chosen": f"{n + 1}", "rejected": f"{n}"} for n in range(12)]
    labelled = write(tmp_path / "pairs.jsonl", lines(pairs))
    before, now = tmp_path / "before", tmp_path / "now"
    check("evaluate", f"pairs={labelled}", *ATTRIBUTES, "--out", before)
    check("evaluate", before / "scored" / "pairs" / "tiny-attributes", "--out", now, "--as", "pairs", "--against", before)
