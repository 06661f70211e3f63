// The address of a view is its whole state, so every view is a permalink.

export interface Route {
  run: string;
  view: string;
  id: string;
  query: URLSearchParams;
}

/** `/runs/RUN/VIEW/ID?QUERY`. */
export function parse(location: Location | URL): Route {
  const [, run = "", view = "", id = ""] = location.pathname.split("/").slice(1).map(decodeURIComponent);
  return { run, view, id, query: new URLSearchParams(location.search) };
}

export function path(run: string, view = "", id = "", query?: URLSearchParams | Record<string, string>): string {
  const parts = ["runs", run, view, id].filter(Boolean).map(encodeURIComponent);
  const asked = new URLSearchParams(query).toString();
  return `/${run ? parts.join("/") : ""}${asked && `?${asked}`}`;
}

/** The query with some values changed; an empty value removes its name. A list holds several values. */
export function changed(query: URLSearchParams, values: Record<string, string | string[]>): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) if (each !== "") next.append(name, each);
  }
  return next;
}

/** Goes to an address without loading the page anew. */
export function go(to: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  window.dispatchEvent(new PopStateEvent("popstate"));
}
