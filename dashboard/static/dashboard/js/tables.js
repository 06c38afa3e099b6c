// Expandable rows. Their details are fetched when a row is opened, and again if that failed or the row has changed.
export function expandable(root) {
  root.addEventListener("htmx:oobBeforeSwap", ({ detail }) => keepExpanded(detail.target, detail.fragment));
  root.addEventListener("click", (event) => {
    const button = event.target.closest(".expander");
    if (button) toggle(button);
  });
}

function toggle(button) {
  const row = document.getElementById(button.getAttribute("aria-controls"));
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  row.hidden = !open;
  const part = row.querySelector("[hx-get]");
  if (open && part?.querySelector(":scope > [data-again]")) part.dispatchEvent(new CustomEvent("reveal-detail"));
}

// A row of the history is refreshed while its checkpoint is pending. Its open detail is fetched again when that ends.
function keepExpanded(before, after) {
  const button = before.querySelector(".expander[aria-expanded=true]");
  if (!button) return;
  after.querySelector(".expander")?.setAttribute("aria-expanded", "true");
  if (after.querySelector("[name=pending]")) return;
  const part = document.getElementById(button.getAttribute("aria-controls")).querySelector("[hx-get]");
  part?.dispatchEvent(new CustomEvent("reveal-detail"));
}
