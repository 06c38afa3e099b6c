// A menu closes when one clicks elsewhere or presses Escape; the rest a <details> does by itself.

export function closeMenus() {
  const close = (besides) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!besides || !menu.contains(besides)) menu.open = false;
    }
  };
  document.addEventListener("click", (event) => close(event.target));
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector("details.menu[open]");
    if (menu) {
      close();
      menu.querySelector("summary").focus();
    }
  });
}
