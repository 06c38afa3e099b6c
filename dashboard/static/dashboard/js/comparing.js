// The check boxes of the history select two checkpoints to compare. The selection is kept between its pages.
export function selectTwo(form) {
  if (!form) return;
  const key = `compare ${form.action}`;
  let picked = JSON.parse(sessionStorage.getItem(key) ?? "[]");
  const boxes = () => [...document.querySelectorAll('input[type="checkbox"][name="pick"]')];

  const show = () => {
    sessionStorage.setItem(key, JSON.stringify(picked));
    for (const box of boxes()) box.checked = picked.includes(box.value);
    const shown = boxes().map((box) => box.value);
    form.querySelectorAll("input").forEach((field) => field.remove());
    form.append(...picked.filter((value) => !shown.includes(value)).map(hidden));
    form.querySelector("output").textContent = picked.join(" · ");
    form.querySelector("[data-compare]").disabled = picked.length !== 2;
    form.toggleAttribute("data-picked", picked.length > 0);
  };
  document.addEventListener("change", ({ target }) => {
    if (!target.matches('[name="pick"]')) return;
    picked = picked.filter((value) => value !== target.value);
    if (target.checked) picked.push(target.value);
    show();
  });
  form.querySelector("[data-clear]").addEventListener("click", () => {
    picked = [];
    show();
  });
  form.addEventListener("submit", () => sessionStorage.removeItem(key));
  document.body.addEventListener("htmx:afterSettle", show); // a refreshed row is not selected
  show();
}

function hidden(value) {
  return Object.assign(document.createElement("input"), { type: "hidden", name: "pick", value });
}
