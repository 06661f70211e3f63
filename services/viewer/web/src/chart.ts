// Line charts over steps or versions, and the histogram of rewards.

import uPlot from "uplot";
import type { Curves, Panel, Summary } from "./api";
import { count, fixed, h, percent, short, signed } from "./dom";

// Okabe and Ito's colours, which the colour-blind tell apart, darkened or lightened for contrast with the page.
const COLOURS = {
  light: ["#0b62a8", "#b34a00", "#0b7a5e", "#9b3f7a", "#8a6a00", "#3b3b3b"],
  dark: ["#6cb4f0", "#ff9e57", "#4fd0a8", "#e79ac8", "#f0d35a", "#c9c9c9"],
};

export const theme = (): "light" | "dark" =>
  document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";

const HEIGHT = 168;

/** A panel as a figure: title, legend with the newest values, lines. */
export function chart(panel: Panel, onclick?: (x: number) => void, { smooth = 1, log = false } = {}): HTMLElement {
  const colours = COLOURS[theme()];
  const xs = [...new Set(panel.series.flatMap((series) => series.x))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, index) => [x, index]));
  const rows = panel.series.map((series) => {
    const row: (number | null)[] = Array(xs.length).fill(null);
    smoothed(series.y, smooth).forEach((y, index) => (row[place.get(series.x[index] ?? 0) ?? 0] = log && y !== null && y <= 0 ? null : y));
    return row;
  });
  const plain = panel.series.filter((series) => !series.dotted).length || 1;
  const colour = (index: number): string => panel.bars ? style("--ink")
    : colours[(panel.series[index]?.dotted ? index - plain : index) % colours.length] ?? "#888";
  const shares = panel.bars?.counts.map((bars) => {
    const total = bars.reduce((sum, each) => sum + each, 0) || 1;
    return bars.map((each) => each / total);
  }) ?? [];
  const most = Math.max(0.01, ...shares.flat());
  const legend = panel.series.map((series, index) =>
    h("li", { "--colour": colour(index), class: series.dotted ? "dotted" : "" },
      series.label, " ", h("b", {}, short(series.y.at(-1)))));
  const where = h("span", { class: "muted" });
  const save = (url: string, kind: string): void =>
    (h("a", { href: url, download: `${panel.title}.${kind}` }) as HTMLAnchorElement).click();
  const edges = (bar: number): string => `${short(edge(panel.bars, bar))} to ${short(edge(panel.bars, bar + 1))}`;
  const table = (): string => [["x", ...[...panel.series.map(({ label }) => label), ...(shares[0] ?? []).map((_, bar) => `share ${edges(bar)}`)]
    .map((label) => `"${label.replaceAll('"', '""')}"`)],
    ...xs.map((x, index) => [x, ...rows.map((row) => row[index] ?? ""), ...(shares[index] ?? [])])].map((line) => line.join(",")).join("\n");
  const downloads = h("span", { class: "downloads" },
    h("button", { class: "link", title: "The figures of this chart", onclick: () => save(URL.createObjectURL(new Blob([`${table()}\n`], { type: "text/csv" })), "csv") }, "CSV"), " ",
    h("button", { class: "link", title: "The picture of this chart",
      onclick: () => save((canvas.querySelector("canvas") as HTMLCanvasElement).toDataURL(), "png") }, "PNG"));
  const canvas = h("div", { class: "plot", role: "img", "aria-label": `${panel.title}: ${spoken(panel)}` });
  const [ink, grid] = [style("--muted"), style("--line")];
  const font = "11px system-ui, sans-serif";
  const options = (width: number): uPlot.Options => ({
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time: false, ...(shares.length ? { range: (_: uPlot, low: number, high: number): [number, number] => [low - half(0), high + half(xs.length - 1)] } : {}) }, y: log ? { distr: 3 } : { range: (_, low, high) => limits(panel, low, high) } },
    axes: [
      { stroke: ink, font, grid: { show: false }, ticks: { stroke: grid, size: 4 }, size: 26,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 1000000] },
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
      drawClear: [(plot) => paint(plot)],
      setCursor: [(plot) => {
        const at = plot.cursor.idx;
        const bar = panel.bars ? Math.floor((plot.posToVal(plot.cursor.top ?? 0, "y") - panel.bars.low) / panel.bars.width) : -1;
        const share = shares[at ?? -1]?.[bar];
        where.replaceChildren(at === null || at === undefined ? "" : ` at ${count(xs[at])}${share === undefined ? "" : `: ${percent(share)} from ${edges(bar)}`}`);
        legend.forEach((item, index) => {
          const value = at === null || at === undefined ? panel.series[index]?.y.at(-1) : rows[index]?.[at];
          item.querySelector("b")?.replaceChildren(short(value));
        });
      }],
    },
  });
  /** Half the distance of a version to its neighbours, which its column fills. */
  const half = (index: number): number => {
    const gaps = [index - 1, index].filter((left) => left >= 0 && left + 1 < xs.length)
      .map((left) => (xs[left + 1] ?? 0) - (xs[left] ?? 0));
    return gaps.length ? Math.min(...gaps) / 2 : 0.5;
  };
  /** The histograms, behind the lines. */
  const paint = ({ ctx, bbox, valToPos }: uPlot): void => {
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = style("--good");
    shares.forEach((bars, index) => bars.forEach((share, bar) => {
      if (!share) return;
      const [left, right] = [-1, 1].map((side) => Math.round(valToPos((xs[index] ?? 0) + side * half(index), "x", true)));
      const [bottom, top] = [bar, bar + 1].map((each) => Math.round(valToPos(edge(panel.bars, each), "y", true)));
      ctx.globalAlpha = 0.1 + 0.9 * Math.sqrt(share / most);
      ctx.fillRect(left ?? 0, top ?? 0, (right ?? 0) - (left ?? 0), (bottom ?? 0) - (top ?? 0));
    }));
    ctx.restore();
  };
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
  return h("figure", { class: "card chart" }, h("figcaption", {}, h("h3", {}, panel.title, where), downloads,
    h("ul", {}, legend, shares.length ? h("li", { class: "shade" }, "darkest ", h("b", {}, percent(most))) : null)),
    canvas);
}

/** The panels of two runs that are compared, and of one at a glance. */
export const CURVES = ["Reward", "Share of answers", "Regret of legal moves", "Entropy, nats per token"];

/** A panel with the same one of another run over it, dotted. */
export function overlaid(panel: Panel, other: Curves, name: string): Panel {
  const second = [...other.training, ...other.strength].find(({ title }) => title === panel.title);
  const plain = (each: Panel): Panel["series"] => each.series.filter(({ dotted }) => !dotted);
  return !second ? panel : { ...panel, series: [...plain(panel),
    ...plain(second).map((series) => ({ ...series, label: `${name}: ${series.label}`, dotted: true }))] };
}

/** Running means over `width` values, those before and at each. */
function smoothed(values: (number | null)[], width: number): (number | null)[] {
  if (width < 2) return values;
  return values.map((value, index) => {
    const near = values.slice(Math.max(0, index - width + 1), index + 1).filter((each) => each !== null);
    return value === null ? null : near.reduce((sum, each) => sum + each, 0) / near.length;
  });
}

/** The lower edge of a bar. */
const edge = (bars: Panel["bars"], bar: number): number => bars ? bars.low + bar * bars.width : 0;

/** A colour of the theme. */
const style = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#777";

function limits(panel: Panel, low: number, high: number): [number, number] {
  if (panel.bars) return [panel.bars.low, edge(panel.bars, panel.bars.counts[0]?.length ?? 1)];
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
    }, Object.entries(bin.grades).reverse().filter(([, value]) => value)
      .map(([name, value]) => h("i", { class: name, "--part": value / most })));
  });
  const [first, last] = [summary.bins[0], summary.bins.at(-1)];
  const [low, high] = [first?.low ?? 0, last?.high ?? 0];
  const mark = (value: number | null, name: string): HTMLElement | null =>
    value === null || high <= low || value < low || value > high ? null
      : h("span", { class: `mark ${name}${(value - low) / (high - low) < 0.2 ? " left" : ""}`, "--at": (value - low) / (high - low), title: `${name} ${signed(value, 3)}` },
        name === "mean" ? `mean ${signed(value, 2)}` : "0");
  return h("div", { class: "histogram" },
    h("div", { class: "axis" }, h("span", {}, `${count(most)} answers`)),
    h("div", { class: "bars", role: "group", "aria-label": "Histogram of rewards" }, bars, mark(summary.reward, "mean"),
      low < 0 && high > 0 ? mark(0, "zero") : null),
    h("div", { class: "axis" }, h("span", {}, short(first?.low)), h("span", {}, "reward"),
      h("span", {}, short(last?.high))));
}
