// A form is sent once, however often one clicks, and what it was answered with is no page that sends it again.
const AGAIN_MS = 10_000; // a server that hangs may be tried again

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

// A page that answers a form, because something in it was wrong, takes the address of the page that the form was sent
// from: who loads it anew or comes back to it gets that one, and is not asked whether to send it all again.
export function becomeThePageItWasSentFrom() {
  if (!("sent" in document.body.dataset)) return;
  const from = document.referrer;
  history.replaceState(null, "", from.startsWith(`${location.origin}/`) ? from : location.href);
}
