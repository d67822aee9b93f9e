"""Two scored corpora: their rewards side by side, and how far the same responses have the same rank in both."""

from typing import Any

from actors.errors import SettingsError
from pipelines.folders.run_folder.columns import REWARD, WITHIN_ROW
from pipelines.results.comparison import matched
from pipelines.results.comparison.sides import MATCHED_BY, REWARD_NAME, load, matching_of
from pipelines.results.html_report.responses import Responses
from pipelines.results.html_report.sections.outputs import distribution
from pipelines.settings.filter_settings import ChoiceSettings

_POINTS = 2_000  # of more, a scatter chart is one blot, and the page grows by up to 40 bytes a point


def comparison(first: Responses, second: Responses) -> dict[str, Any]:
    """Distributions of both rewards over common bins, and the rank correlation over the responses that both scored.

    Responses are the same where `assay diff` says so. `rho` is None where it isn't defined: `why_not` says why.
    """
    sides = [distribution(side, side.folder, side.name(REWARD)) for side in (first, second)]
    ends = [side["ends"] for side in sides if side["count"]]
    if ends:
        # Each side has chosen its own bins. Shares are only comparable over the same ones, so both are counted again.
        common = min(low for low, _ in ends), max(high for _, high in ends)
        sides = [distribution(side, side.folder, side.name(REWARD), common) for side in (first, second)]
    return {"sides": sides, **_ranks(first, second)}


def _ranks(first: Responses, second: Responses) -> dict[str, Any]:
    if first.columns.within_row or second.columns.within_row:
        return {"rho": None, "why_not": WITHIN_ROW}
    try:
        matching = matching_of(first.corpus, second.corpus)
    except SettingsError as error:  # texts are needed and weren't kept: the rest of the page is right without them
        return {"rho": None, "why_not": str(error)}
    with matched.database() as connection:
        load(connection, {"first": first.corpus, "second": second.corpus}, matching, [REWARD_NAME], ChoiceSettings())
        matched.match(connection, 1)
        count, rho = matched.rank(connection, 0), matched.spearman(connection)
        # An order that nothing of the rewards decides, and the same in every run.
        columns = connection.sql(f"select a, b from moves order by hash(a_part_at, a_row_at) limit {_POINTS}").fetchnumpy()
    return {
        "common": count,
        "rho": rho,
        "points": [columns[side].tolist() for side in "ab"],
        "matched_by": MATCHED_BY[matching.by],
        "why_not": f"{count:,} responses, matched by {MATCHED_BY[matching.by]}, have a reward in both, and "
        + ("it takes two" if count < 2 else "one of the folders has a single value"),
    }
