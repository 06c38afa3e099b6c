// Draw the figures that the server builds. Their traces have roles, and each role gets the colour of the page here.
import { withOffset } from "./moments.js";
import { sessionIsOver } from "./session.js";
import { holdHeights } from "./steady.js";
import { TEXTS } from "./texts.js";

const RENEW_MS = 10000;
const NARROW_MARGIN = 52; // px, for the labels of axes on a phone
const LOCALE = document.documentElement.lang;
// The formats of dates on axes are texts of the page. Plotly has all other formats.
const LOCALES = { [LOCALE]: { format: TEXTS.dates } };
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false, locale: LOCALE, locales: LOCALES };

let charts = [...document.querySelectorAll("[data-chart]")];

async function load(chart) {
  const answer = await fetch(chart.dataset.chart, { headers: { Accept: "application/json" } });
  if (!answer.ok || answer.redirected) throw new Error(`${answer.status}`);
  return answer.json();
}

async function renew(chart) {
  let answer;
  try {
    answer = await load(chart);
  } catch {
    if (!chart.drawn) say(chart, chart.dataset.lost);
    return;
  }
  const note = chart.closest(".card")?.querySelector(".chart-note");
  if (note) note.textContent = answer.empty ? "" : answer.note;
  chart.closest(".card")?.toggleAttribute("data-rolled", Boolean(answer.rolled));
  if (answer.empty) {
    if (chart.drawn) window.Plotly.purge(chart);
    chart.drawn = null;
    chart.zooms = false; // purge removed the listeners
    say(chart, chart.dataset.empty);
    return;
  }
  chart.drawn = answer.figure;
  chart.parentElement.classList.remove("lanes-low");
  draw(chart);
  holdHeights();
}

function draw(chart) {
  const figure = structuredClone(chart.drawn);
  chart.querySelector(".loading, .chart-empty")?.remove();
  figure.data.forEach(paint);
  dress(figure.layout);
  if (chart.clientWidth < 900) labelsOfRuns(figure.layout).forEach((label) => (label.text = label.text.split(" · ")[0]));
  if (chart.clientWidth < 560) squeeze(figure);
  window.Plotly.react(chart, figure.data, figure.layout, CONFIG);
  if (chart.zooms) return;
  chart.zooms = true;
  chart.on("plotly_relayout", zoom);
  chart.on("plotly_hover", (event) => chart.toggleAttribute("data-linked", Boolean(checkpointOf(chart, event))));
  chart.on("plotly_unhover", () => chart.removeAttribute("data-linked"));
  chart.on("plotly_click", (event) => openCheckpoint(chart, event));
  chart.on("plotly_clickannotation", ({ annotation, event }) => open(chart.drawn.layout.meta.comparisons[annotation.x], event));
}

// The key of the checkpoint nearest to the pointer. Points of roll-ups have none.
function checkpointOf(chart, { points, event }) {
  const left = chart.querySelector(".nsewdrag").getBoundingClientRect().left;
  const distance = (point) => Math.abs(point.xaxis.d2p(point.x) - (event.clientX - left));
  return points.filter((point) => point.customdata).sort((a, b) => distance(a) - distance(b))[0]?.customdata;
}

function openCheckpoint(chart, event) {
  const key = checkpointOf(chart, event);
  if (key && chart.dataset.checkpoint) open(chart.dataset.checkpoint.replace("/0/", `/${key}/`), event.event);
}

function open(address, { ctrlKey, metaKey }) {
  if (ctrlKey || metaKey) window.open(address, "_blank", "noopener");
  else location.assign(address);
}

// Load the page with the selected time range, so that its tiles, its other charts and its URL use this range.
function zoom(change) {
  const [since, until] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
  if (!since || !until) return;
  const address = new URL(location.href);
  address.searchParams.delete("range");
  address.searchParams.set("since", withOffset(since, "since"));
  address.searchParams.set("until", withOffset(until, "until"));
  location.assign(address);
}

function say(chart, text) {
  chart.replaceChildren();
  const words = document.createElement("div");
  words.className = "chart-empty";
  words.textContent = text;
  chart.append(words);
}

function paint(trace) {
  const { role, steps } = trace.meta;
  if (role === "hover") return;
  if (role === "steps") {
    const colours = Array.from({ length: steps }, (_, step) => colour(`--step-${step}`));
    trace.colorscale = colours.flatMap((c, i) => [[i / steps, c], [(i + 1) / steps, c]]);
    trace.zmin = -0.5;
    trace.zmax = steps - 0.5;
    return;
  }
  const own = colour(`--chart-${role}`);
  trace.marker = { ...trace.marker, color: own };
  if (role === "failed") trace.marker.pattern = { shape: "/", fgcolor: own, bgcolor: colour("--surface"), size: 5, solidity: 0.6 };
  if (trace.line) trace.line = { ...trace.line, color: own };
  if (trace.fill) trace.fillcolor = own.replace("rgb(", "rgba(").replace(")", ", 0.35)");
}

function dress(layout) {
  const soft = colour("--text-soft");
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  layout.font = { family: getComputedStyle(document.body).fontFamily, size: 11, color: soft };
  layout.hoverlabel = { bgcolor: colour("--surface"), bordercolor: colour("--line-strong"), font: { color: colour("--text"), size: 12 }, align: "left" };
  layout.xaxis = { ...layout.xaxis, linecolor: colour("--line-strong"), tickcolor: colour("--line-strong") };
  for (const axis of Object.keys(layout).filter((name) => name.startsWith("yaxis"))) layout[axis].gridcolor = colour("--line");
  for (const shape of layout.shapes ?? []) {
    if (shape.name === "incident") shape.fillcolor = colour("--bad-soft");
    else if (shape.name === "gap") shape.fillcolor = colour("--warn-soft");
    else shape.line.color = soft;
  }
  for (const label of layout.annotations ?? []) label.font = { size: 11, color: label.name === "change" ? colour("--chart-change") : soft };
}

// On a phone, shorten the labels: only numbers of subtasks, fewer times, and only the newest restart.
function squeeze({ data, layout }) {
  layout.xaxis.nticks = 4;
  const [newest] = labelsOfRuns(layout);
  layout.annotations = layout.annotations?.filter((label) => label === newest || label.name);
  if (layout.margin.r > NARROW_MARGIN) layout.margin.r = NARROW_MARGIN;
  for (const { meta, yaxis = "y" } of data) {
    const axis = meta.role === "steps" && layout[yaxis.replace("y", "yaxis")];
    if (axis) axis.ticktext = axis.ticktext.map((name) => name.split(" · ").pop());
  }
}

// The labels of runs and restarts, the newest first. Other annotations have names: flags of changes and texts in a lane.
function labelsOfRuns(layout) {
  return (layout.annotations ?? []).filter((label) => !label.name);
}

// light-dark() and var() are resolved only in the style of an element.
const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);
function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// Charts in a folded part are loaded when it is opened.
const isShown = (chart) => chart.checkVisibility();
charts.filter(isShown).forEach(renew);
setInterval(() => {
  if (document.hidden || sessionIsOver()) return;
  charts.filter((chart) => isShown(chart) && !("once" in chart.dataset)).forEach(renew);
}, RENEW_MS);
async function unfold({ target }) {
  for (const chart of charts.filter((each) => target.open && target.contains(each))) {
    await renew(chart);
    if (chart.drawn && isShown(chart)) window.Plotly.Plots.resize(chart);
  }
}
document.addEventListener("toggle", unfold, true); // it does not bubble
// A swap of a part of the page may add and remove charts.
document.body.addEventListener("htmx:afterSettle", () => {
  const there = [...document.querySelectorAll("[data-chart]")];
  const fresh = there.filter((chart) => !charts.includes(chart));
  charts = there;
  fresh.filter(isShown).forEach(renew);
});
document.addEventListener("theme-change", () => charts.filter((chart) => chart.drawn && isShown(chart)).forEach(draw));
