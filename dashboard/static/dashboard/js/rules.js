// The page of a rule: a suggested value is copied to its field, and the labels are shown only if the scope needs them.
const form = document.getElementById("rule-form");

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-fill]");
  const field = button && form.elements[button.dataset.fill];
  if (!field) return;
  field.value = button.dataset.value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
});

function showLabels() {
  const field = form.elements.selector?.closest(".field");
  const chosen = form.querySelector("input[name=scope]:checked");
  if (field) field.hidden = chosen?.value !== "selector";
}
form?.addEventListener("change", showLabels);
showLabels();
