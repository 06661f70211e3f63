// Elements, and text that a model wrote. Text becomes text nodes only: there is no innerHTML in this page.

type Child = Node | string | number | null | undefined | false | Child[];
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** An element. `on...` are listeners, names that begin with `--` CSS variables, all others attributes. */
export function h(tag: string, props: Props = {}, ...children: Child[]): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (name.startsWith("--")) element.style.setProperty(name, String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child !== null && child !== undefined && child !== false)
      parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// Controls, zero-width and bidirectional characters, and halves of surrogate pairs: what could hide or reorder text.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Text with its invisible characters shown by their numbers. */
export function visible(text: string): Node {
  const fragment = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    const code = match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    append(fragment, [text.slice(end, match.index), h("span", { class: "hidden-char" }, `U+${code}`)]);
    end = match.index + match[0].length;
  }
  append(fragment, [text.slice(end)]);
  return fragment;
}

export interface Mark {
  start: number;
  end: number;
  class: string;
  title: string;
}

const LINE = 1000;
const LINES = 60;

/** A text of a model in a `pre`, with `marks` (places in code points) underlined. Long ones are cut until asked for. */
export function modelText(text: string, marks: Mark[] = []): HTMLElement {
  const shown = cut(text);
  const box = h("pre", { class: marks.length ? "model-text prose" : "model-text", dir: "ltr" }, marked(shown, marks));
  if (shown.length < text.length) {
    const all = h("button", {
      class: "link",
      onclick: () => box.replaceChildren(marked(text, marks)),
    }, `Show all ${count(text.length)} characters`);
    box.append(h("span", { class: "cut" }, " … "), all);
  }
  return box;
}

function cut(text: string): string {
  let end = 0;
  for (let line = 0; line < LINES && end < text.length; line++) {
    const next = text.indexOf("\n", end);
    const stop = next < 0 ? text.length : next + 1;
    if (stop - end > LINE) return text.slice(0, end + LINE);
    end = stop;
  }
  return text.slice(0, end);
}

function marked(text: string, marks: Mark[]): Node {
  if (!marks.length) return visible(text);
  const points = Array.from(text);
  const fragment = document.createDocumentFragment();
  let place = 0;
  for (const mark of marks) {
    if (mark.start < place || mark.start >= points.length) continue;
    fragment.append(visible(points.slice(place, mark.start).join("")));
    const words = visible(points.slice(mark.start, mark.end).join(""));
    fragment.append(h("span", { class: mark.class, title: mark.title }, words));
    place = mark.end;
  }
  fragment.append(visible(points.slice(place).join("")));
  return fragment;
}

export const count = (value: number | null | undefined): string => value?.toLocaleString("en") ?? "–";
export const percent = (value: number | null | undefined, digits = 0): string =>
  Number.isFinite(value) ? `${(100 * Number(value)).toFixed(digits)}%` : "–";

/** A number that an archive may lack, or have as NaN or an infinity, which come as null. */
export const fixed = (value: number | null | undefined, digits: number): string =>
  Number.isFinite(value) ? Number(value).toFixed(digits) : "–";

/** A number with its sign, by a minus of the same width as the plus. */
export function signed(value: number | null | undefined, digits = 2): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : (value < 0 ? "−" : "+") + text;
}

/** A short form of a number for axes and tables. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 10000) return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1000 ? 4 : 3))).replace("-", "−");
}

/** A notice in place of data. Text between backticks is code. */
export const empty = (title: string, text: string): HTMLElement =>
  h("div", { class: "empty" }, h("strong", {}, title),
    h("p", {}, text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part))));

export const words = (name: string): string => name.replaceAll("_", " ");
