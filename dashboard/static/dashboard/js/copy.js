// Copy a secret that is shown once, or select it if the clipboard is not available.

const CHINESE = document.documentElement.lang === "zh-hans";
const SAYS = CHINESE ? { copied: "已复制", selected: "已选中：请按 Ctrl-C" } : { copied: "Copied", selected: "Selected: press Ctrl-C" };

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const field = document.getElementById(button.dataset.copy);
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = SAYS.copied;
    } catch {
      button.textContent = SAYS.selected;
    }
  });
}
