// Update relative times while the page is open. monitoring/units.py has the same formats.
export function keepTimesTrue() {
  // The clocks of server and browser may differ, so ages are computed with the clock of the server.
  const skew = serverSkew();
  setInterval(() => renew(Date.now() + skew), 1000);
}

// When the run that the page shows ended (milliseconds). From then on, ages within [data-of-run] no longer change.
let runEnded = null;

function renew(now) {
  runEnded ??= Date.parse(document.querySelector("[data-run-ended]")?.dataset.runEnded ?? "") || null;
  for (const element of document.querySelectorAll("time[data-ago], time[data-age], time[data-until]")) {
    const at = Date.parse(element.dateTime);
    const until = runEnded !== null && element.closest("[data-of-run]") ? Math.min(now, runEnded) : now;
    const text = words(element, (until - at) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

const WORDS = {
  en: { now: "due now", ago: (text) => `${text} ago`, until: (text) => `in ${text}`, units: ["s", "min", "h", "d"] },
  "zh-hans": {
    now: "现在",
    ago: (text) => `${text}前`,
    until: (text) => `${text}后`,
    units: ["秒", "分钟", "小时", "天"],
  },
};

function language() {
  return WORDS[document.documentElement.lang] ?? WORDS.en;
}

function words(element, seconds) {
  const says = language();
  if ("until" in element.dataset) return seconds >= 0 ? says.now : says.until(age(-seconds));
  return "ago" in element.dataset ? says.ago(age(seconds)) : age(seconds);
}

export function age(exact) {
  const [s, min, h, d] = language().units;
  const seconds = Math.max(0, Math.floor(exact));
  if (seconds < 60) return `${seconds} ${s}`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes} ${min} ${seconds % 60} ${s}` : `${minutes} ${min}`;
  if (minutes < 60) return `${minutes} ${min}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} ${h} ${String(minutes % 60).padStart(2, "0")} ${min}` : `${hours} ${h}`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} ${d} ${hours % 24} ${h}` : `${days} ${d}`;
}

function serverSkew() {
  const written = Date.parse(document.querySelector("meta[name=server-time]")?.content ?? "");
  return Number.isNaN(written) ? 0 : written - (performance.timeOrigin + performance.now());
}
