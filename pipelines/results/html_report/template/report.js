"use strict";
// What the page does beyond being read: draws charts, and moves the cut. Text of a corpus is only ever set as text.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const drawn = new Map(); // the element of each chart, its data, and the chart

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(label) {
  return { label, labelSize: 22, labelGap: 0, labelFont: "12px system-ui", font: "11px system-ui", stroke: color("--faint"),
    grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
}

function series(kind, line, at) {
  const stroke = color(`--series-${at % 6}`);
  const common = { label: line.label, stroke, width: 2, value: (_, value) => (value === null ? "" : NUMBER.format(value)) };
  if (kind === "bars") return { ...common, width: 0, fill: stroke, paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false } };
  if (kind === "lines") return { ...common, spanGaps: true, points: { show: line.values.length < 60, size: 5, fill: stroke } };
  return { ...common, paths: () => null, points: { show: true, size: kind === "scatter" ? 4 : 8, space: 0, width: 0, fill: stroke } };
}

function drawIntervals(plot, spec) {
  const { ctx } = plot;
  ctx.save();
  spec.series.forEach((line, at) => {
    ctx.strokeStyle = color(`--series-${at % 6}`);
    ctx.lineWidth = 2 * devicePixelRatio;
    line.lows.forEach((low, place) => {
      if (low === null || line.highs[place] === null) return;
      const x = plot.valToPos(spec.x[place], "x", true);
      ctx.beginPath();
      ctx.moveTo(x, plot.valToPos(low, "y", true));
      ctx.lineTo(x, plot.valToPos(line.highs[place], "y", true));
      ctx.stroke();
    });
  });
  ctx.restore();
}

function drawMark(plot, spec) {
  if (spec.mark === undefined) return;
  const { ctx, bbox } = plot, x = plot.valToPos(spec.mark, "x", true);
  ctx.save();
  ctx.strokeStyle = color("--ink");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function intervalOptions(spec) {
  const bounds = spec.series.flatMap((line) => [...line.values, ...line.lows, ...line.highs]).filter((value) => value !== null);
  const low = Math.min(...bounds, 1), high = Math.max(...bounds, 0), margin = (high - low || 1) * 0.05;
  return { range: [low - margin, high + margin], around: 0.2, hooks: { draw: [(plot) => drawIntervals(plot, spec)] } };
}

function draw(element, spec) {
  drawn.get(element)?.plot.destroy();
  // Half a bar beside the outermost centres; and room beside points, of which the library draws but one right at the end.
  const bar = spec.kind === "bars" ? (spec.x[1] - spec.x[0]) / 2 : 0;
  const { range, around, hooks } = spec.kind === "intervals" ? intervalOptions(spec)
    : { around: spec.kind === "scatter" ? ((spec.x.at(-1) - spec.x[0]) || 1) * 0.02 : bar, hooks: { draw: [(plot) => drawMark(plot, spec)] } };
  const x = axis(spec.xLabel);
  if (spec.kind === "intervals") {
    x.splits = (_, __, from, to) => Array.from({ length: Math.ceil(to) }, (___, at) => at + 1).filter((at) => at >= from && at <= to);
  }
  const options = {
    width: Math.max(200, element.clientWidth), height: 220, hooks,
    legend: { show: spec.series.length > 1, live: spec.kind === "lines" },
    cursor: { drag: { x: false, y: false }, points: { show: spec.kind === "lines" } },
    scales: { x: { time: false, ...(around && { range: [spec.x[0] - around, spec.x.at(-1) + around] }) }, y: range ? { range } : spec.kind === "bars" ? { range: (_, __, most) => [0, most * 1.05 || 1] } : {} },
    axes: [{ ...x, size: 32 }, { ...axis(spec.yLabel), size: 60 }],
    series: [{ label: spec.xLabel }, ...spec.series.map((line, at) => series(spec.kind, line, at))],
  };
  const plot = new uPlot(options, [spec.x, ...spec.series.map((line) => line.values)], element);
  drawn.set(element, { spec, plot });
  return plot;
}

function sorted(x, y) { // the chart library takes ascending x
  const order = x.map((_, at) => at).sort((a, b) => x[a] - x[b]);
  return [order.map((at) => x[at]), order.map((at) => y[at])];
}

function scatter(element, x, y, xLabel, yLabel) {
  const [ascending, values] = sorted(x, y);
  draw(element, { kind: "scatter", x: ascending, series: [{ label: yLabel, values }], xLabel, yLabel });
}

function neighbour(example, value) {
  const heading = document.createElement("h4");
  const shown = document.createElement("b");
  shown.textContent = NUMBER.format(value);
  const name = document.createElement("bdi");
  name.textContent = `${example.row} ${example.response}`;
  const prompt = document.createElement("span");
  prompt.dir = "auto";
  prompt.textContent = example.prompt;
  heading.append(shown, " ", name, prompt);
  const text = document.createElement("pre");
  text.dir = "auto";
  text.textContent = example.text;
  return [heading, text];
}

function explore(section) {
  const { outputs, examples, total } = JSON.parse(section.dataset.explorer);
  const [select, slider, shown] = ["select", "input", "output"].map((name) => section.querySelector(name));
  const fact = (name, text) => { section.querySelector(`[data-fact="${name}"]`).textContent = text; };
  const place = section.querySelector(".chart");

  function beside(side, pairs) {
    section.querySelector(`[data-side="${side}"]`).replaceChildren(...pairs.slice(0, 3).flatMap(([example, value]) => neighbour(example, value)));
  }

  function move() {
    const at = Number(slider.value), number = outputs.findIndex(({ name }) => name === select.value), output = outputs[number];
    const cut = Number(output.cuts[at]);
    shown.textContent = `≥ ${output.cuts[at]}`;
    slider.setAttribute("aria-valuetext", output.cuts[at]);
    fact("kept", WHOLE.format(output.kept[at]));
    fact("share", `${(100 * output.kept[at] / total).toFixed(2)} %`);
    fact("tokens", WHOLE.format(output.tokens[at]));
    const length = output.length[at], error = output.length_error[at];
    fact("length", length === null ? "none sampled" : WHOLE.format(length) + (error ? ` ± ${NUMBER.format(error)}` : ""));
    section.querySelector(".command code").textContent = output.command.join(output.cuts[at]);
    const pairs = examples.map((example) => [example, example.values[output.index]]).filter(([, value]) => value !== null);
    beside("above", pairs.filter(([, value]) => value >= cut).sort(([, a], [, b]) => a - b));
    beside("below", pairs.filter(([, value]) => value < cut).sort(([, a], [, b]) => b - a));
    drawn.get(place).spec.mark = cut;
    drawn.get(place).plot.redraw(false);
  }

  function choose() {
    const output = outputs.find(({ name }) => name === select.value);
    slider.max = output.cuts.length - 1;
    slider.value = Math.floor((output.cuts.length - 1) / 2);
    draw(place, { kind: "lines", x: output.cuts.map(Number), xLabel: output.name, yLabel: "share kept",
      series: [{ label: "share kept", values: output.kept.map((count) => count / total) }] });
    move();
  }

  for (const { name } of outputs) select.append(new Option(name, name));
  select.addEventListener("change", choose);
  slider.addEventListener("input", move);
  section.querySelector(".command button").addEventListener("click", async ({ target }) => {
    const code = section.querySelector(".command code");
    getSelection().selectAllChildren(code); // so that it can be copied by hand where the browser gives no clipboard
    try {
      await navigator.clipboard.writeText(code.textContent);
      target.textContent = "Copied";
    } catch {
      target.textContent = "Selected";
    }
  });
  choose();
}

function correlate(section) {
  const points = JSON.parse(section.dataset.points), select = section.querySelector("select");
  const show = () => {
    const values = points[select.value], known = (_, at) => values[at] !== null;
    scatter(section.querySelector(".chart"), values.filter(known), points.reward.filter(known),
      select.selectedOptions[0].textContent, "reward");
  };
  select.addEventListener("change", show);
  show();
}

function nameLanguage(cell) { // by the browser's own names; "unclear" has none
  const code = cell.dataset.language, name = code.length > 3 ? code : new Intl.DisplayNames("en", { type: "language" }).of(code);
  if (name !== code) cell.textContent = `${name} (${code})`;
}

for (const element of document.querySelectorAll("[data-chart]")) {
  const spec = JSON.parse(element.dataset.chart);
  if (spec.kind === "scatter") scatter(element, spec.x, spec.series[0].values, spec.xLabel, spec.yLabel);
  else draw(element, spec);
}
document.querySelectorAll(".correlations").forEach(correlate);
document.querySelectorAll("[data-language]").forEach(nameLanguage);
document.querySelectorAll(".explorer").forEach(explore);

function redraw() {
  for (const [element, { spec }] of [...drawn]) draw(element, spec);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) redraw();
  width = innerWidth;
});
