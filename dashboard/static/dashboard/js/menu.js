// Close menus and pop-ups on a click elsewhere or on Escape. <details> elements do the rest.
const OPEN = "details:is(.menu, .popover)[open]";

export function closeMenus() {
  document.addEventListener("click", ({ target }) => {
    for (const menu of document.querySelectorAll(OPEN)) {
      if (!menu.contains(target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector(OPEN);
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}
