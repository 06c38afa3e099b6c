// The beat: live parts listen to "tick" (4 s) or "fast-tick" (1 s) on the body. A hidden tab, or a reader who marks text,
// pauses it. A failed answer is said, never hidden: the page then shows what was known before.
const SLOW_MS = 4000;
const FAST_MS = 1000;

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
    if (paused()) {
      if (!lost) show("paused", "Paused");
      return;
    }
    if (!lost) show("on", "Live");
    document.body.dispatchEvent(new CustomEvent(name));
  };
  setInterval(() => send("tick"), SLOW_MS);
  setInterval(() => send("fast-tick"), FAST_MS);
  document.addEventListener("visibilitychange", () => send("tick"));

  const fail = () => {
    lost ??= new Date().toLocaleTimeString();
    show("lost", `No answer since ${lost}`);
  };
  document.body.addEventListener("htmx:sendError", fail);
  document.body.addEventListener("htmx:timeout", fail);
  document.body.addEventListener("htmx:responseError", fail);
  document.body.addEventListener("htmx:afterOnLoad", () => {
    lost = null;
    show("on", "Live");
  });
}

function readerMarksText() {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.toString().trim());
}
