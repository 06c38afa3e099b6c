// The theme follows the system until the reader selects one. A cookie stores it, so that the server renders the theme.
const dark = matchMedia("(prefers-color-scheme: dark)");

export function themeSwitch(button) {
  button?.addEventListener("click", () => {
    const chosen = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    document.cookie = `theme=${chosen}; path=/; max-age=31536000; samesite=lax`;
    document.dispatchEvent(new CustomEvent("theme-change"));
  });
  dark.addEventListener("change", () => document.dispatchEvent(new CustomEvent("theme-change")));
}

function current() {
  return document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
}
