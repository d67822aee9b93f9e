"""The command `certify`."""

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from actors.errors import GateFailed
from actors.text.counted import counts_text
from actors.text.visible import line
from pipelines.cli.flags import argument, build_from, command, json_option, settings_options, silence_ray
from pipelines.cli.plain_console import Report, tell
from pipelines.settings.certify_settings import CertifySettings

if TYPE_CHECKING:
    from pipelines.results.certificates.certificate import Certificate

_OPTIONS = ("inputs", "output", "max_effect", "family", "rubric", "engine", "overwrite")


@command()
@argument("model", CertifySettings)
@settings_options(
    CertifySettings, "model", "append", "prefix", "text", "log", only=_OPTIONS, inputs=("--on",), output=("--out",)
)
@json_option
def certify(as_json: bool, **options: Any) -> None:
    """Measure how far what should not matter moves the rewards of MODEL, a head or a judge, on rows that it scores.

    Scores a sample of the rows as they are and changed: order of responses, length, Markdown, openings, tags, white space,
    names, seed. Each effect has an interval, and all hold together. Run the same command again to resume. Exit code 5 if
    --max-effect isn't shown to hold. `assay report` shows the folder as a page.
    """
    from pipelines.run.runtime.progress import TerminalProgress
    from pipelines.workflows.certifying import certify_model

    settings = build_from(CertifySettings, options)
    with silence_ray():
        certificate = certify_model.certify(settings, TerminalProgress())
    tell(as_json, certificate, _report(certificate, settings.output))
    # After the report: a gate that fails must not hide the figures.
    if settings.max_effect is not None:
        failures = [failure for effect in certificate.effects if (failure := effect.failure(settings.max_effect))]
        if failures:
            raise GateFailed(line("; ".join(failures)))


def _report(certificate: "Certificate", output: str) -> Report:
    from pipelines.results.evaluation.results import MADE_UP

    unit = f"standard deviations of the reward, which are {certificate.deviation:.3g}"
    yield f"{certificate.model}: {certificate.questions:,} questions; effects are mean changes in {unit}"
    table = Table("change", "effect", "interval", "flipped", "pairs", "finding", box=SIMPLE_HEAD)
    left: dict[str, list[str]] = {}
    for effect in certificate.effects:
        low, high = effect.size_interval or (None, None)
        size = ("", "") if low is None else (f"{effect.size:+.2f}", f"{low:+.2f} to {high:+.2f}")
        flipped = "" if effect.flipped is None else f"{effect.flipped:.1%}"
        table.add_row(effect.name, *size, flipped, f"{effect.pairs:,}", effect.finding)
        left.setdefault(counts_text(effect.left), []).append(effect.name)
    yield table
    yield f"All intervals hold together with a confidence of {certificate.confidence:g}"
    yield from (f"Questions without a pair: {counts}, of {', '.join(names)}" for counts, names in left.items() if counts)
    if certificate.left:
        yield f"Rows without a question: {counts_text(certificate.left)}"
    for name, rows in certificate.beginnings.items():
        yield f"Of {name} only the first {rows:,} rows were looked at: unpack it or make it JSONL, for rows of all its parts"
    if certificate.made_up:
        yield MADE_UP
    yield f"Certificate: {output}/certificate.json"
