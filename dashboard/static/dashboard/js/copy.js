// Copy a text of the page, or a secret that is shown once. Select it if the clipboard is not available.

const CHINESE = document.documentElement.lang === "zh-hans";
const SAYS = CHINESE ? { copied: "已复制", selected: "已选中：请按 Ctrl-C" } : { copied: "Copied", selected: "Selected: press Ctrl-C" };

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-text]");
    if (!button) return;
    const field = document.getElementById(button.dataset.copy ?? button.dataset.copyText);
    if ("copy" in button.dataset) field.select();
    try {
      await navigator.clipboard.writeText(field.value ?? field.textContent);
      button.textContent = SAYS.copied;
    } catch {
      if (!("copy" in button.dataset)) document.getSelection().selectAllChildren(field);
      button.textContent = SAYS.selected;
    }
  });
}
