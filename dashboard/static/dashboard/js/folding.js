// Folded parts with data-remember stay as the reader left them, also on the pages of other jobs.
const KEY = "open-parts";

export function rememberFolds() {
  const opened = new Set(stored());
  for (const part of document.querySelectorAll("details[data-remember]")) {
    if (opened.has(part.id)) part.open = true;
    part.addEventListener("toggle", () => {
      if (part.open) opened.add(part.id);
      else opened.delete(part.id);
      try {
        localStorage.setItem(KEY, JSON.stringify([...opened]));
      } catch {
        // The browser stores nothing for this site.
      }
    });
  }
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
}
