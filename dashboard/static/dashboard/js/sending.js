// Send a form only once, also after several clicks. A reload of the response does not send the form again.
const AGAIN_MS = 10_000; // after this time, a form may be sent again, because the server may hang

export function sendOnce() {
  const sent = new WeakMap();
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post") return;
    if (Date.now() - (sent.get(form) ?? -Infinity) < AGAIN_MS) event.preventDefault();
    else sent.set(form, Date.now());
  });
  addEventListener("pageshow", ({ persisted }) => persisted && document.querySelectorAll("form").forEach((form) => sent.delete(form)));
}

// A page that shows the errors of a form takes the URL of the form's page. So a reload or the back button loads that
// page, and the browser does not ask whether to send the form again.
export function becomeThePageItWasSentFrom() {
  if (!("sent" in document.body.dataset)) return;
  const from = document.referrer;
  history.replaceState(null, "", from.startsWith(`${location.origin}/`) ? from : location.href);
}
