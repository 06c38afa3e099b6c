// Refresh the live parts of a page. They listen for "tick" (every 4 s) or "fast-tick" (every 1 s) on the body. Large
// parts listen for "tick-2" … "tick-6", which come every 2nd … 6th tick. The refresh pauses while the tab is hidden or
// text is selected. If a request fails, the page says so and keeps its content.
import { sessionIsOver } from "./session.js";

const SLOW_MS = 4000;
const FAST_MS = 1000;
const SELDOM = [2, 3, 4, 5, 6];
const CHINESE = document.documentElement.lang === "zh-hans";
const SAYS = CHINESE ? { on: "实时", paused: "已暂停", lost: (at) => `自 ${at} 起无响应`, over: "会话已结束" } : { on: "Live", paused: "Paused", lost: (at) => `No answer since ${at}`, over: "Session expired" };

export function beat(light) {
  let lost = null;
  const show = (state, text) => {
    if (light && (light.dataset.state !== state || light.textContent !== text)) {
      light.dataset.state = state;
      light.textContent = text;
    }
  };
  const paused = () => document.hidden || readerMarksText();
  const send = (name) => {
    if (sessionIsOver()) return; // session.js polls for a new log-in
    if (paused()) {
      if (!lost) show("paused", SAYS.paused);
      return;
    }
    if (!lost) show("on", SAYS.on);
    document.body.dispatchEvent(new CustomEvent(name));
  };
  let ticks = 0;
  const tick = () => {
    ticks += 1;
    send("tick");
    for (const every of SELDOM) if (ticks % every === 0) send(`tick-${every}`);
  };
  setInterval(tick, SLOW_MS);
  setInterval(() => send("fast-tick"), FAST_MS);
  document.addEventListener("visibilitychange", () => ["tick", ...SELDOM.map((every) => `tick-${every}`)].forEach(send));

  const fail = ({ detail }) => {
    lost ??= new Date().toLocaleTimeString();
    show("lost", detail.xhr?.status === 401 ? SAYS.over : SAYS.lost(lost));
  };
  document.body.addEventListener("htmx:sendError", fail);
  document.body.addEventListener("htmx:timeout", fail);
  document.body.addEventListener("htmx:responseError", fail);
  // htmx also sends this event after an error response.
  document.body.addEventListener("htmx:afterOnLoad", ({ detail }) => {
    if (!detail.successful) return;
    lost = null;
    show("on", SAYS.on);
  });
}

// A refreshed part keeps the reader's open <details> elements with an id, and their scroll positions.
export function keepOpen() {
  let kept = [];
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    kept = [...detail.target.querySelectorAll("details[id][open]")].map((d) => [d.id, d.querySelector("pre")?.scrollTop ?? 0]);
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    for (const [id, scrolled] of kept) {
      const opened = document.getElementById(id);
      if (!opened) continue;
      opened.open = true;
      const text = opened.querySelector("pre");
      if (text) text.scrollTop = scrolled;
    }
  });
}

// It keeps the horizontal scroll positions of tables and rows of tabs, which are found by their names.
export function keepScrolled() {
  let kept = [];
  const aside = (root) => [...root.querySelectorAll(".tabs, .table-wrap")];
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    kept = aside(detail.target).filter((part) => part.scrollLeft > 0).map((part) => [part.ariaLabel, part.scrollLeft]);
  });
  document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
    const found = new Map(aside(detail.target).map((part) => [part.ariaLabel, part]));
    for (const [name, scrolled] of kept) if (found.has(name)) found.get(name).scrollLeft = scrolled;
  });
}

// It keeps the keyboard focus. htmx does so for elements with an id; here, others are found by their link and name.
export function keepFocus() {
  let kept = null;
  const named = (part) => [part.tagName, part.getAttribute("href") ?? part.name, part.ariaLabel ?? part.textContent.trim()].join(" ");
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    const focused = document.activeElement;
    kept = detail.target.contains(focused) && !focused.id ? named(focused) : null;
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    if (kept === null || document.activeElement !== document.body) return;
    [...document.querySelectorAll("a, button, summary, [tabindex]")].find((part) => named(part) === kept)?.focus({ preventScroll: true });
    kept = null;
  });
}

// It keeps input in fields with data-keep, which are found by name and value (checkboxes) or by name (text).
export function keepInput() {
  let kept = [];
  const fields = (root) => [...root.querySelectorAll("input[data-keep]")];
  const key = (field) => (field.type === "checkbox" ? `${field.name}=${field.value}` : field.name);
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    kept = fields(detail.target).map((f) => [key(f), f.checked, f.value, f === document.activeElement]);
  });
  document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
    const found = new Map(fields(detail.target).map((f) => [key(f), f]));
    for (const [name, checked, value, focused] of kept) {
      const field = found.get(name);
      if (!field) continue;
      if (field.type === "checkbox") field.checked = checked;
      else field.value = value;
      if (focused) field.focus();
    }
  });
}

// After more rows were loaded by keyboard, move the focus to the first of them.
export function goOnBelow() {
  let rows = null;
  const more = (detail) => detail.requestConfig?.elt.id === "more";
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (more(detail)) rows = document.activeElement?.id === "more" ? detail.target.querySelectorAll("tbody tr:not(.group-row)").length : null;
  });
  document.body.addEventListener("htmx:afterSettle", ({ detail }) => {
    if (!more(detail) || rows === null) return;
    detail.target.querySelectorAll("tbody tr:not(.group-row)")[rows]?.querySelector("a[id]")?.focus({ preventScroll: true });
    rows = null;
  });
}

function readerMarksText() {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.toString().trim());
}
