// Parts with data-steady do not get lower while the page is open, so that a refresh does not move what is below them.
const steady = () => document.querySelectorAll("[data-steady]");

export function keepHeights() {
  let width = window.innerWidth;
  document.body.addEventListener("htmx:afterSettle", holdHeights);
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    for (const part of steady()) part.style.minHeight = "";
    holdHeights();
  });
  holdHeights();
}

export function holdHeights() {
  for (const part of steady()) part.style.minHeight = `${part.offsetHeight}px`;
}
