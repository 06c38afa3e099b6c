// The box in a table's head chooses every row that is shown; it is checked as long as all of them are.
export function chooseAll(root) {
  root.addEventListener("change", (event) => {
    const table = event.target.closest("table");
    if (event.target.matches("[data-choose-all]")) {
      for (const box of boxesOf(table)) box.checked = event.target.checked;
    } else if (event.target.matches('tbody input[type="checkbox"]')) {
      tell(table);
    }
  });
  // Rows that came below were not chosen by anybody.
  root.body.addEventListener("htmx:afterSettle", ({ detail }) => detail.target.querySelectorAll("table").forEach(tell));
}

const boxesOf = (table) => [...table.querySelectorAll('tbody input[type="checkbox"]')];

function tell(table) {
  const all = table.querySelector("[data-choose-all]");
  const boxes = all ? boxesOf(table) : [];
  if (all) all.checked = boxes.length > 0 && boxes.every((box) => box.checked);
}
