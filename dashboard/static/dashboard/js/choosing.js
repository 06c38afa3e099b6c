// The checkbox in the head of a table selects every shown row. It is checked while all rows are selected.
export function chooseAll(root) {
  root.addEventListener("change", (event) => {
    const table = event.target.closest("table");
    if (event.target.matches("[data-choose-all]")) {
      for (const box of boxesOf(table)) box.checked = event.target.checked;
    } else if (event.target.matches('tbody input[type="checkbox"]')) {
      tell(table);
    }
  });
  // Appended rows are not selected, so update the checkbox in the head.
  root.body.addEventListener("htmx:afterSettle", ({ detail }) => detail.target.querySelectorAll("table").forEach(tell));
}

const boxesOf = (table) => [...table.querySelectorAll('tbody input[type="checkbox"]')];

function tell(table) {
  const all = table.querySelector("[data-choose-all]");
  const boxes = all ? boxesOf(table) : [];
  if (all) all.checked = boxes.length > 0 && boxes.every((box) => box.checked);
}
