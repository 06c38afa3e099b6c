// Light or dark: the system's wish until the reader chooses; the choice is a cookie, so that the server draws it at once.
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
