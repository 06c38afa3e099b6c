// The texts of the scripts in the language of the page, from dashboard/templatetags/shell.py.
export const TEXTS = JSON.parse(document.getElementById("script-texts").textContent);

// Replace the placeholder %(name)s of a text.
export const filled = (text, name, value) => text.replace(`%(${name})s`, () => value);
