"""Renders the page: the template with its data, style, script and chart library in one file.

The chart library is uPlot 1.6.32 (MIT): 51 kB minified, a quarter of Chart.js, for charts of the same kinds. Its files are
as they were published.
"""

import base64
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from actors.text.visible import visible
from pipelines.folders.scored_corpus.summary import QUANTILES, quantile_title
from pipelines.results.html_report import charts

MARK = "<!-- A page of `assay report` -->"
"""Begins every page, so that the command writes over its own pages only."""
_NO_WAY_OUT = "base-uri 'none'; form-action 'none'"
_FOLDER = Path(__file__).parent / "template"


def render(shown: Mapping[str, Any]) -> str:
    """The page as HTML. Whatever comes from a corpus is escaped, and no script but the page's own may run.

    A pure function of `shown`: the same data gives the same bytes, by which `build` knows that nothing changed.
    """
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    # allow_nan: NaN isn't JSON, and the script would stop at it. It must become null before.
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.filters |= {"number": _number, "percent": _percent, "quantile": quantile_title}
    style = _file("uplot/uPlot.min.css") + _file("report.css")
    script = f"/*\n{_file('uplot/LICENSE.txt')}*/\n{_file('uplot/uPlot.iife.min.js')}\n{_file('report.js')}"
    return environment.get_template("report.html.jinja").render(
        {"runs": [], "comparison": None, "evaluation": None, "certificates": [], **shown},
        mark=Markup(MARK),
        style=Markup(style),
        script=Markup(script),
        # By hashes: whatever a corpus smuggles in has another one, and neither runs nor loads anything.
        policy=f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; {_NO_WAY_OUT}",
        levels=QUANTILES,
        charts=charts,
    )


def _visible(value: Any) -> Any:
    # Every text of a corpus passes here, also one that a new section forgets to clean. `Markup`, a subclass of str, is HTML
    # of ours.
    return visible(value) if type(value) is str else value


def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{round(value, 3) + 0.0:,.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
