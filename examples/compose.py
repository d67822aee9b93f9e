"""Scoring inside your own Ray Data pipeline: `.venv/bin/python examples/compose.py`, or cell by cell in a notebook.

`--engine fake` tries it without vLLM, with made-up rewards.
"""

# %% Rows: four answers to each of forty questions, some right and some wrong
import argparse
import logging
import os
import secrets
from random import Random

import ray

from assay import filter, pairs, score
from tiny_models.synthetic import draw_case

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--engine", choices=["vllm", "fake"], default="vllm")
engine = parser.parse_known_args()[0].engine  # a notebook has arguments of its own

random = Random("compose")
cases = [draw_case(random, "held-out", right=2, wrong=2) for _ in range(40)]
rows = [
    {
        "question": number,
        "right": response.right,
        "messages": [*case.context, {"role": "assistant", "content": response.text}],
    }
    for number, case in enumerate(cases)
    for response in case.responses
]

# %% A dataset, from wherever Ray Data reads
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray leaves one in your home, for whatever comes later
ray.init(address=os.environ.get("RAY_ADDRESS", "local"), log_to_driver=False)  # needs two CPUs at the least
logging.getLogger("ray.data").setLevel(logging.ERROR)
ray.data.DataContext.get_current().enable_progress_bars = False
conversations = ray.data.from_items(rows)
print(f"{conversations.count()} conversations, {conversations.filter(expr='right').count()} of them with a right answer")

# %% Scored: the columns that were there, and Assay's. Lazy: only the first rows are looked at.
scored = score(conversations, model="tiny-attributes", engine=engine)

# %% Further steps are Ray Data's, or ours. All of it runs here, once; what follows takes it from memory.
judged = scored.map(lambda row: {**row, "words": len(row["messages"][-1]["content"].split())}).materialize()
for row in judged.take(3):
    shown = "rejected: " + row["reason"] if row["reward"] is None else f"{row['reward']:.2f}"
    print(f"  {shown:>6}  {row['messages'][-1]['content']}")

# %% What meets a condition; the columns of your own count too
brief = filter(judged, "reward >= 1.0 and scores.correctness > 2.5 and words < 12")
print(f"keep: {brief.count()} good and brief answers")

# %% The best answer to each question
best = filter(judged, top_k=1, per="prompt")
print(f"top_k: the best answers to {best.count()} questions, {sum(row['right'] for row in best.take_all())} of them right")

# %% The best tenth of all
tenth = filter(judged, top_fraction=0.1)
rewards = [row["reward"] for row in tenth.take_all()]
print(f"top_fraction: the best {len(rewards)} answers, rewards from {min(rewards):.2f} to {max(rewards):.2f}")

# %% Preference pairs, the best with the worst answer to each question. A step of our own came between: `of` tells of which.
preferences = pairs(judged, "trl", of=scored, min_margin=0.5, partitions=4, fake_ok=engine == "fake").take_all()
print(f"pairs: {len(preferences)}, the first one prefers {preferences[0]['chosen'][0]['content']!r}")
