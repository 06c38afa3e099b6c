// The page of a rule: a suggested value is copied to its field, and only the fields that the scope needs are shown.
const form = document.getElementById("rule-form");

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-fill]");
  const field = button && form.elements[button.dataset.fill];
  if (!field) return;
  field.value = button.dataset.value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
});

function showScope() {
  const scope = form.querySelector("input[name=scope]:checked")?.value;
  const needed = { selector: scope === "selector", job: scope === "job", name: scope !== "job" };
  for (const [name, isNeeded] of Object.entries(needed)) {
    const field = form.elements[name]?.closest(".field");
    if (field) field.hidden = !isNeeded;
  }
}
form?.addEventListener("change", showScope);
showScope();
