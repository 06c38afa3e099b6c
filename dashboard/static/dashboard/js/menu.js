// Close menus and pop-ups on a click elsewhere or on Escape. <details> elements do the rest. The menu of a row is placed
// next to its button, because the table would clip it.
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
  document.addEventListener("toggle", ({ target }) => target.matches?.(".row-menu > [open]") && place(target), true);
  document.addEventListener("scroll", () => {
    const menu = document.querySelector(".row-menu > [open]");
    if (menu) place(menu);
  }, { capture: true, passive: true });
}

function place(menu) {
  const button = menu.querySelector("summary").getBoundingClientRect();
  const { style, offsetWidth, offsetHeight } = menu.querySelector(".menu-items");
  const below = button.bottom + 4;
  style.left = `${Math.max(8, button.right - offsetWidth)}px`;
  style.top = `${below + offsetHeight > innerHeight ? Math.max(8, button.top - offsetHeight - 4) : below}px`;
}
