// A session may end while its pages are open. Then their live parts get status 401. A page without typed text reloads
// and so goes to the log-in. A page with typed text shows a warning, keeps the text and sends nothing until its reader
// has logged in again in another tab. A page that is opened tells the other tabs its user. The page then refreshes its
// live parts, and its forms get the new token. Until then, only the navigation polls, once a minute.
const TOKEN = "csrfmiddlewaretoken";
const OPENED_BY = "opened-by";
const ASK_MS = 60_000;

export const sessionIsOver = () => document.getElementById("session-over")?.hidden === false;

export function keepSession(note) {
  if (!note) return;
  let isLeaving = false;
  document.body.addEventListener("htmx:responseError", ({ detail }) => {
    if (detail.xhr.status !== 401) return;
    // Every live part gets status 401, but a second reload would cancel the first.
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
  // The back button may restore a page with old content.
  addEventListener("pageshow", ({ persisted }) => persisted && tick());
}

const tick = () => document.body.dispatchEvent(new CustomEvent("tick"));

function askWhetherItIsBack() {
  const ask = () => sessionIsOver() && document.getElementById("nav").dispatchEvent(new CustomEvent("ask"));
  const seen = () => document.hidden || ask();
  setInterval(seen, ASK_MS);
  document.addEventListener("visibilitychange", seen);
  const reader = JSON.parse(document.body.getAttribute("hx-headers"))["X-Reader"];
  // Some browsers do not keep pages with a BroadcastChannel for the back button, so use localStorage.
  addEventListener("storage", ({ key, newValue }) => key === OPENED_BY && newValue?.split(" ")[0] === reader && ask());
  localStorage.setItem(OPENED_BY, `${reader} ${Date.now()}`); // with the time, because other tabs get no event without a change
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

// A log-in creates a new CSRF token in a cookie. Copy it to the forms and to the headers of requests.
function renewTokens() {
  const token = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1];
  if (!token || token === renewTokens.last) return;
  renewTokens.last = token;
  for (const field of document.querySelectorAll(`input[name=${TOKEN}]`)) field.value = token;
  const headers = JSON.parse(document.body.getAttribute("hx-headers"));
  document.body.setAttribute("hx-headers", JSON.stringify({ ...headers, "X-CSRFToken": token }));
}
