// Rows that open to their details (fetched the first time) and columns that sort.
export function expandable(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest(".expander");
    if (button) toggle(button);
  });
  openFromAddress();
}

function toggle(button) {
  const row = document.getElementById(button.getAttribute("aria-controls"));
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  row.hidden = !open;
  const part = row.querySelector("[hx-get]");
  if (open && part && !part.dataset.asked) {
    part.dataset.asked = "yes";
    part.dispatchEvent(new CustomEvent("reveal-detail"));
  }
}

// …/history/#checkpoint-12 opens that row.
function openFromAddress() {
  if (!location.hash.startsWith("#checkpoint-")) return;
  addEventListener("load", () => document.getElementById(location.hash.slice(1))?.querySelector(".expander")?.click());
}

export function sortable(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("table[data-sortable] .sort");
    if (button) sortBy(button.closest("th"));
  });
}

function sortBy(heading) {
  const column = heading.cellIndex;
  const ascending = heading.getAttribute("aria-sort") === "descending" || (column === 0 && !heading.hasAttribute("aria-sort"));
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = heading.closest("table").querySelector("tbody[data-rows]");
  const value = (row) => Number(row.cells[column]?.dataset.value ?? -1);
  const rows = [...body.rows].sort((a, b) => (ascending ? value(a) - value(b) : value(b) - value(a)));
  body.append(...rows);
}
