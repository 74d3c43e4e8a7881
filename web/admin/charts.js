// The charts, drawn by uPlot, in light and dark colours. Without uPlot, the page shows a note in
// their place.

import { WORKERS_DRAWN_MAX } from "./figures.js";
import { bytes, clock, milliseconds, percent, perSecond, short } from "./format.js";
import { make, say } from "./dom.js";

const HEIGHT = 128;
const SCRIPT = "vendor/uplot/uPlot.iife.min.js";
const STYLE = "vendor/uplot/uPlot.min.css";
const COLOURS = 8;
/** The minimum time range of a chart, in seconds. */
const LEAST_S = 60;
/** The distances that ticks may have on axes of sizes in bytes. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/**
 * For each chart: title, format of values, lines for all workers together, and the figure drawn per
 * worker.
 */
const CHARTS = [
  { title: "Connections", show: short, lines: { connections: "open", sessions: "WebSockets" }, each: "connections" },
  { title: "Messages", show: perSecond(short), lines: { in: "in", out: "out" }, each: "messages", eachTitle: "Messages, in and out" },
  { title: "Fan-out", show: perSecond(short), lines: { fanout: "deliveries", pushes: "publications" }, each: "fanout", eachTitle: "Fan-out, deliveries" },
  { title: "Latency of the loop", show: milliseconds, lines: { p50: "median", p99: "99th percentile" }, each: "p99", eachTitle: "Latency of the loop, 99th percentile" },
  { title: "Loop busy", show: percent, lines: { busy: "of the time" }, each: "busy", eachTitle: "Loop busy, of the time" },
  { title: "Memory", show: bytes, isBytes: true, lines: { process: "process", history: "histories", apps: "apps" }, each: "memory", eachTitle: "Memory, histories and apps" },
  { title: "Traffic", show: perSecond(bytes), isBytes: true, lines: { received: "in", sent: "out" }, each: "traffic", eachTitle: "Traffic, in and out" },
  { title: "Errors and limits", show: perSecond(short), lines: { slow: "too slow", dropped: "dropped", refused: "rejected", broken: "errors" }, each: "slow", eachTitle: "Clients closed as too slow" },
];

/** Loads uPlot; resolves with it, or with `null` if the binary was built without it. */
function load() {
  document.head.append(make("link", { rel: "stylesheet", href: STYLE }));
  return new Promise((done) => {
    const script = make("script", { src: SCRIPT });
    script.onload = () => done(globalThis.uPlot ?? null);
    script.onerror = () => done(null);
    document.head.append(script);
  });
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns the range of values: from 0 to a little above the largest value. */
const above = (_, low, high) => [0, high === null || high <= 0 ? 1 : high * 1.12];

export class Charts {
  #holder;
  #lines;
  #uplot = null;
  #drawn = [];
  #workers = 0;
  #spanSeconds = 300;
  #byWorker = false;
  #ready;

  constructor(holder, lines) {
    this.#holder = holder;
    this.#lines = lines;
    this.#ready = load().then((uplot) => {
      this.#uplot = uplot;
      if (uplot) return this.#build();
      const why = "No charts: this binary was built without uPlot. “make setup-run” fetches it, then build again. The table below has all figures.";
      this.#holder.replaceChildren(make("p", { class: "empty" }, why));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#build());
    new ResizeObserver(() => this.#fit()).observe(holder);
  }

  show(spanSeconds, byWorker) {
    const isOther = byWorker !== this.#byWorker;
    this.#spanSeconds = spanSeconds;
    this.#byWorker = byWorker;
    if (isOther) this.#build();
    else this.draw();
  }

  /** Draws the current values of the lines. */
  draw(workers = this.#workers) {
    const isOther = workers !== this.#workers;
    this.#workers = workers;
    if (!this.#uplot || !this.#holder.offsetParent) return;
    if (isOther && this.#byWorker) return this.#build();
    for (const chart of this.#drawn) {
      chart.plot.setData([this.#lines.times, ...chart.names.map((name) => this.#lines.of(name))]);
      chart.label();
      if (chart.plot.cursor.idx === null || chart.plot.cursor.idx === undefined) chart.tell(this.#lines.times.length - 1);
    }
  }

  #build() {
    if (!this.#uplot) return;
    for (const chart of this.#drawn) chart.plot.destroy();
    this.#drawn = [];
    this.#holder.replaceChildren();
    const count = Math.min(this.#workers, WORKERS_DRAWN_MAX);
    for (const about of CHARTS) {
      const lines = this.#byWorker
        ? Array.from({ length: count }, (_, at) => [`${about.each}@${at}`, String(at)])
        : Object.entries(about.lines);
      this.#drawn.push(this.#chart(about, lines));
    }
    this.draw();
  }

  #chart({ title, eachTitle, show, isBytes }, lines) {
    const values = lines.map(([, label], at) => {
      const value = make("b", {}, "–");
      return { value, item: make("li", {}, make("i", { class: `c${at % COLOURS}` }), `${label} `, value) };
    });
    // A screen reader can't read a canvas, so its label has the latest values.
    const plotHolder = make("div", { class: "plot", role: "img" });
    const heading = this.#byWorker ? (eachTitle ?? title) : title;
    const figure = make("figure", { class: "chart", "data-chart": title }, make("figcaption", {}, heading), make("ul", {}, values.map(({ item }) => item)), plotHolder);
    this.#holder.append(figure);
    const names = lines.map(([name]) => name);
    const shown = (name, at) => show(this.#lines.of(name)[at]);
    const tell = (at) => names.forEach((name, line) => say(values[line].value, shown(name, at)));
    const label = () => {
      const latest = this.#lines.times.length - 1;
      const parts = lines.map(([name, label]) => `${this.#byWorker ? "worker " : ""}${label} ${shown(name, latest)}`);
      plotHolder.setAttribute("aria-label", `${heading}: ${parts.join(", ")}`);
    };
    const [soft, edge] = [colour("--soft"), colour("--edge")];
    const axis = { stroke: soft, font: `11px ${colour("--sans")}`, grid: { stroke: edge, width: 1 }, ticks: { show: false } };
    const options = {
      width: this.#width(plotHolder),
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: "admin" }, drag: { x: false, y: false }, points: { size: 5 } },
      scales: {
        x: { time: true, range: () => this.#span() },
        y: { range: above },
      },
      axes: [
        { ...axis, size: 24, space: 70, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, this.#spanSeconds > 300 ? 5 : 8)) },
        { ...axis, size: 62, space: 32, ...(isBytes && { incrs: POWERS }), values: (_, ticks) => ticks.map(show) },
      ],
      series: [{}, ...names.map((_, at) => ({ stroke: colour(`--c${at % COLOURS}`), width: 1.5, points: { show: false } }))],
      hooks: { setCursor: [(plot) => tell(plot.cursor.idx ?? this.#lines.times.length - 1)] },
    };
    const plot = new this.#uplot(options, [this.#lines.times, ...names.map((name) => this.#lines.of(name))], plotHolder);
    return { plot, plotHolder, names, tell, label };
  }

  /** Returns the shown time range: all known times up to the chosen span, but at least a minute. */
  #span() {
    const { times } = this.#lines;
    const last = times.at(-1) ?? 0;
    const known = last - (times[0] ?? last);
    return [last - Math.min(this.#spanSeconds, Math.max(LEAST_S, known)), last];
  }

  #width(holder) {
    return Math.max(160, Math.floor(holder.clientWidth));
  }

  #fit() {
    for (const { plot, plotHolder } of this.#drawn) {
      const width = this.#width(plotHolder);
      if (plotHolder.clientWidth > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
    this.draw();
  }
}
