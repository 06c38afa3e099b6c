// The box in a table's head chooses every row of the page.
export function chooseAll(root) {
  root.addEventListener("change", (event) => {
    const boxes = event.target.closest("table")?.querySelectorAll('tbody input[type="checkbox"]') ?? [];
    if (event.target.matches("[data-choose-all]")) {
      for (const box of boxes) box.checked = event.target.checked;
    } else if (event.target.matches('tbody input[type="checkbox"]')) {
      const all = event.target.closest("table").querySelector("[data-choose-all]");
      if (all) all.checked = [...boxes].every((box) => box.checked);
    }
  });
}
