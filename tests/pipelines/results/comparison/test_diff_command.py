"""The command `diff`: what it prints, and how it ends."""

import json
from dataclasses import replace
from pathlib import Path

from pipelines.folders.run_folder.manifest import read_manifest
from tests.pipelines.results.comparison.test_diff_folders import corpus, other_model
from tests.support.commands import assay, summary


def test_a_person_reads_what_changed(tmp_path: Path) -> None:
    first = corpus(tmp_path / "a", [1.0, 2.0, 3.0, 4.0], ["w", "x", "y\x1b[31m", "z"])
    second = other_model(corpus(tmp_path / "b", [1.0, None, 9.0, 4.0], ["w", "x", "y\x1b[31m", "z"]))
    done = assay("diff", first, second, "--where", "reward > 3.5", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    for line in (
        f"first: {first}, 4 responses by m; 0 only there",
        f"second: {second}, 4 responses by another; 0 only there",
        "4 responses are in both, matched by input file, place and name",
        "Made with another model",
        "1 responses have another status or reason",
        "  1: scored to rejected too_long",
        "Largest moves of reward, in percentile points of rank",
        "--where 'reward > 3.5': kept in both 1, only in the first 0, only in the second 1",
        "  kept only in the second: c:2 (final) y⟨U+001B⟩[31m",
    ):
        assert line in done.stdout
    assert "\x1b" not in done.stdout  # of a text: it could steer the terminal


def test_numbers_are_whole_on_a_narrow_terminal_whatever_the_texts_are(tmp_path: Path) -> None:
    texts = ["a sentence of some words, which is longer than a line of a terminal is wide, and goes on", "x" * 200]
    first, second = corpus(tmp_path / "a", [1.0, 2.0], texts), corpus(tmp_path / "b", [1.25, 2.125], texts)
    lines = assay("diff", first, second, COLUMNS="80").stdout.splitlines()
    moves = [line.split()[:6] for line in lines if line.strip().startswith("+0.")]
    assert moves == [["+0.25", "1", "1.25", "2", "to", "2"], ["+0.125", "2", "2.125", "1", "to", "1"]]
    assert "a sentence" in " ".join(lines)
    assert max(map(len, lines[lines.index("Largest moves of reward, in units of the number:") :])) <= 80


def test_rewards_that_are_made_up_are_said_to_be_in_plain_words(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "a", [1.0])
    manifest = read_manifest(folder)
    assert manifest is not None
    replace(manifest, identity={**manifest.identity, "engine": "fake"}).write(folder)
    shown = assay("diff", folder, folder).stdout
    assert shown.endswith("These numbers are made up: --engine fake is for trying a pipeline out\n")
    assert "**" not in shown


def test_a_gate_ends_with_5_after_the_figures(tmp_path: Path) -> None:
    first, second = corpus(tmp_path / "a", [1.0, 2.0]), corpus(tmp_path / "b", [1.0, 2.5])
    assert summary("diff", first, second, "--max-move", "0.5")["largest_move"] == 0.5
    failed = assay("diff", first, second, "--max-move", "0.4", "--json")
    assert failed.returncode == 5
    assert json.loads(failed.stdout)["failures"] == [failed.stderr.strip().removeprefix("assay: ")]
