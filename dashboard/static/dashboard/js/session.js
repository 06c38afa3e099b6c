// A session may end, here or in another tab, while its pages are open. Their live parts are then answered 401. A page in
// which nothing was typed goes to the log-in. One in which something was says so, keeps it and sends nothing, until its
// reader has logged in again in another tab: pages that open tell the others whose they are, the live parts are answered
// anew, and the forms get the new token. Until then the beat stands still, and only the smallest part asks, seldom.
const TOKEN = "csrfmiddlewaretoken";
const OPENED_BY = "opened-by";
const ASK_MS = 60_000;

export const sessionIsOver = () => document.getElementById("session-over")?.hidden === false;

export function keepSession(note) {
  if (!note) return;
  let isLeaving = false;
  document.body.addEventListener("htmx:responseError", ({ detail }) => {
    if (detail.xhr.status !== 401) return;
    // Every live part is answered 401. A second reload would cancel the first.
    if (!isLeaving && !somethingIsTyped()) {
      isLeaving = true;
      location.reload();
    }
    note.hidden = false;
  });
  document.body.addEventListener("htmx:afterOnLoad", ({ detail }) => {
    if (!detail.successful) return;
    const isBack = sessionIsOver();
    note.hidden = true;
    renewTokens();
    if (isBack) tick();
  });
  const hold = (event) => {
    if (!sessionIsOver() || event.target.method !== "post") return;
    event.preventDefault();
    event.stopPropagation();
    note.querySelector("a").focus();
  };
  document.addEventListener("submit", hold, true);
  askWhetherItIsBack();
  // A page that comes back by the back button is as old as it was left.
  addEventListener("pageshow", ({ persisted }) => persisted && tick());
}

const tick = () => document.body.dispatchEvent(new CustomEvent("tick"));

function askWhetherItIsBack() {
  const ask = () => sessionIsOver() && document.getElementById("nav").dispatchEvent(new CustomEvent("ask"));
  const seen = () => document.hidden || ask();
  setInterval(seen, ASK_MS);
  document.addEventListener("visibilitychange", seen);
  const reader = JSON.parse(document.body.getAttribute("hx-headers"))["X-Reader"];
  // Not a BroadcastChannel: a page that holds one is not kept for the back button everywhere.
  addEventListener("storage", ({ key, newValue }) => key === OPENED_BY && newValue?.split(" ")[0] === reader && ask());
  localStorage.setItem(OPENED_BY, `${reader} ${Date.now()}`); // else it is no change, which others would not hear of
}

function somethingIsTyped() {
  const fields = [...document.forms].flatMap((form) => [...form.elements]);
  return "sent" in document.body.dataset || fields.some(isTyped);
}

function isTyped(field) {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.type === "select-one") {
    const first = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(0, first);
  }
  if (field.type === "select-multiple") return [...field.options].some((option) => option.selected !== option.defaultSelected);
  if (field.type === "file") return field.files.length > 0;
  return field.matches("input:not([type=hidden]), textarea") && field.value !== field.defaultValue;
}

// A log-in makes a new token; who has read it from the cookie may send it.
function renewTokens() {
  const token = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1];
  if (!token || token === renewTokens.last) return;
  renewTokens.last = token;
  for (const field of document.querySelectorAll(`input[name=${TOKEN}]`)) field.value = token;
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  document.body.setAttribute("hx-headers", JSON.stringify({ ...headers, "X-CSRFToken": token }));
}
