// The tail of a log: new lines are appended while "Follow" is on. Scrolling up turns it off, as in a terminal.
import { sessionIsOver } from "./session.js";

const MOST_SHOWN = 2_000_000; // characters; the download has the whole log
const log = document.getElementById("log");
const follow = document.getElementById("log-follow");
let end = Number(log?.dataset.end);
let isReading = false;

const here = document.getElementById("log-here");
if (here) log.scrollTop = here.offsetTop - log.clientHeight / 2;

if (log && follow) {
  toEnd();
  log.addEventListener("scroll", () => {
    if (!isAtEnd()) follow.checked = false;
  });
  follow.addEventListener("change", () => {
    if (!follow.checked) return;
    toEnd();
    read();
  });
  document.body.addEventListener("tick", read);
  window.addEventListener("resize", () => follow.checked && toEnd());
}

function toEnd() {
  log.scrollTop = log.scrollHeight;
}

function isAtEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < 24;
}

async function read() {
  if (!follow.checked || isReading || sessionIsOver()) return;
  isReading = true;
  try {
    while (follow.checked && (await readPart()));
  } catch {
    // The indicator at the top shows that Waymark does not answer. The next tick retries.
  } finally {
    isReading = false;
  }
}

// Read and append a part of the log. Return true if there is more to read now.
async function readPart() {
  const answer = await fetch(`${log.dataset.news}&start=${end}`, { headers: { Accept: "application/json" } });
  if (!answer.ok || answer.redirected) return false;
  const news = await answer.json();
  if (!follow.checked) return false; // paused meanwhile
  const wasCut = news.size < end;
  if (!wasCut && news.text) append(news.text);
  const hasMoved = news.end !== end;
  end = wasCut ? 0 : news.end;
  return wasCut || (hasMoved && end < news.size);
}

function append(text) {
  log.append(text);
  while (log.textContent.length > MOST_SHOWN && log.childNodes.length > 1) log.firstChild.remove();
  if (follow.checked) toEnd();
}
