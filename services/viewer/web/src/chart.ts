// Line charts over steps or versions, and the histogram of rewards.

import uPlot from "uplot";
import type { Panel, Summary } from "./api";
import { count, fixed, h, short } from "./dom";

// Okabe and Ito's colours, which the colour-blind tell apart, darkened or lightened for contrast with the page.
const COLOURS = {
  light: ["#0b62a8", "#b34a00", "#0b7a5e", "#9b3f7a", "#8a6a00", "#3b3b3b"],
  dark: ["#6cb4f0", "#ff9e57", "#4fd0a8", "#e79ac8", "#f0d35a", "#c9c9c9"],
};

export const theme = (): "light" | "dark" =>
  document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";

const HEIGHT = 168;

/** A panel as a figure: title, legend with the newest values, lines. */
export function chart(panel: Panel, onclick?: (x: number) => void): HTMLElement {
  const colours = COLOURS[theme()];
  const xs = [...new Set(panel.series.flatMap((series) => series.x))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, index) => [x, index]));
  const rows = panel.series.map((series) => {
    const row: (number | null)[] = Array(xs.length).fill(null);
    series.x.forEach((x, index) => (row[place.get(x) ?? 0] = series.y[index] ?? null));
    return row;
  });
  const plain = panel.series.filter((series) => !series.dotted).length || 1;
  const colour = (index: number): string =>
    colours[(panel.series[index]?.dotted ? index - plain : index) % colours.length] ?? "#888";
  const legend = panel.series.map((series, index) =>
    h("li", { "--colour": colour(index), class: series.dotted ? "dotted" : "" },
      series.label, " ", h("b", {}, short(series.y.at(-1)))));
  const canvas = h("div", { class: "plot", role: "img", "aria-label": `${panel.title}: ${spoken(panel)}` });
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--muted").trim() || "#777";
  const grid = getComputedStyle(document.documentElement).getPropertyValue("--line").trim() || "#ddd";
  const font = "11px system-ui, sans-serif";
  const options = (width: number): uPlot.Options => ({
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { range: (_, low, high) => limits(panel, low, high) } },
    axes: [
      { stroke: ink, font, grid: { show: false }, ticks: { stroke: grid, size: 4 }, size: 26 },
      { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 44,
        values: (_, v) => v.map(short) },
    ],
    series: [
      {},
      ...panel.series.map((series, index) => ({
        label: series.label,
        stroke: colour(index),
        width: series.dotted ? 1.25 : 1.75,
        ...(series.dotted ? { dash: [4, 4] } : {}),
        points: { show: xs.length < 3 },
        spanGaps: true,
      })),
    ],
    hooks: {
      setCursor: [(plot) => {
        const at = plot.cursor.idx;
        legend.forEach((item, index) => {
          const value = at === null || at === undefined ? panel.series[index]?.y.at(-1) : rows[index]?.[at];
          item.querySelector("b")?.replaceChildren(short(value));
        });
      }],
    },
  });
  let plot: uPlot | null = null;
  const resized = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry?.contentRect.width ?? 0);
    if (!width) return;
    if (plot) plot.setSize({ width, height: HEIGHT });
    else plot = new uPlot(options(width), [xs, ...rows] as uPlot.AlignedData, canvas);
  });
  resized.observe(canvas);
  if (onclick) canvas.addEventListener("click", () => {
    const at = plot?.cursor.idx;
    if (at !== null && at !== undefined) onclick(xs[at] ?? 0);
  });
  return h("figure", { class: "card chart" }, h("figcaption", {}, h("h3", {}, panel.title), h("ul", {}, legend)),
    canvas);
}

function limits(panel: Panel, low: number, high: number): [number, number] {
  const bottom = panel.low ?? low;
  const top = panel.high ?? high;
  const room = (top - bottom || Math.abs(top) || 1) * 0.06;
  return [panel.low === null ? bottom - room : bottom, panel.high === null ? top + room : top];
}

const spoken = (panel: Panel): string =>
  panel.series.map((s) => `${s.label} from ${short(s.y[0])} to ${short(s.y.at(-1))}`).join("; ");

/** The histogram of rewards. Each bar is a link to its answers. */
export function histogram(summary: Summary, chosen: (low: string, below: string) => boolean,
  link: (low: string, below: string) => string): HTMLElement {
  const most = Math.max(1, ...summary.bins.map((bin) => bin.legal + bin.other));
  const bars = summary.bins.map((bin, index) => {
    const all = bin.legal + bin.other;
    const last = index === summary.bins.length - 1;
    const [low, below] = [String(bin.low), last ? "" : String(bin.high)];
    const label = `Reward ${fixed(bin.low, 2)} to ${fixed(bin.high, 2)}: ${count(all)} answers, ${count(bin.legal)} legal`;
    if (!all) return h("span", { class: "bar" });
    return h("a", {
      class: chosen(low, below) ? "bar chosen" : "bar", href: link(low, below), title: label, "aria-label": label,
      "--legal": bin.legal / most, "--other": bin.other / most,
    }, h("i", { class: "other" }), h("i", { class: "legal" }));
  });
  const [first, last] = [summary.bins[0], summary.bins.at(-1)];
  return h("div", { class: "histogram" },
    h("div", { class: "bars", role: "group", "aria-label": "Histogram of rewards" }, bars),
    h("div", { class: "axis" }, h("span", {}, short(first?.low)), h("span", {}, "reward"),
      h("span", {}, short(last?.high))));
}
