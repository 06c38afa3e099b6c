// The search box of Ctrl-K (Cmd-K on a Mac). Arrow keys select a suggestion, Enter opens it, Escape closes the box.
export function palette(dialog) {
  if (!dialog) return;
  const text = dialog.querySelector("input");
  const hits = () => [...dialog.querySelectorAll("[role=option]")];

  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else open();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // a click outside the dialog's content
  });
  dialog.addEventListener("htmx:afterSwap", () => choose(0));
  text.addEventListener("keydown", (event) => {
    const chosen = hits().findIndex((hit) => hit.ariaSelected === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      hits()[chosen]?.click();
    }
  });

  function open() {
    text.value = "";
    dialog.showModal();
    text.focus();
    text.dispatchEvent(new CustomEvent("show"));
  }

  function choose(wanted) {
    const found = hits();
    const index = found.length ? (wanted + found.length) % found.length : -1;
    found.forEach((hit, position) => hit.setAttribute("aria-selected", String(position === index)));
    found[index]?.scrollIntoView({ block: "nearest" });
    if (index < 0) text.removeAttribute("aria-activedescendant");
    else text.setAttribute("aria-activedescendant", found[index].id);
  }
}
