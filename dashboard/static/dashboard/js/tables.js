// Expandable rows. Their details are fetched when a row is opened, and again if that failed.
export function expandable(root) {
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
