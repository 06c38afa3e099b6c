// Copy a secret that is shown once, or select it if the clipboard is not available.
import { TEXTS } from "./texts.js";

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const field = document.getElementById(button.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = TEXTS.copied;
    } catch {
      button.textContent = TEXTS.selected;
    }
  });
}
