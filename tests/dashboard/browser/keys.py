"""Use a page by keyboard only: walk through it with Tab, check the focus, and find unreachable elements."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page

_MOST = 600  # the most presses of Tab for one page
# The elements that Tab must reach. In a group of radio buttons it reaches only one; arrow keys reach the others.
_PLACES = """
const FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
const isShown = (part) => part.checkVisibility({ visibilityProperty: true }) && part.getClientRects().length > 0;
const called = (part) => (part.ariaLabel ?? part.textContent.trim()).slice(0, 60) || part.name;
const named = (part) => `${part.tagName.toLowerCase()} “${called(part)}”`;
const isLeftToArrows = (part) => {
  if (part.type !== "radio" || !part.form) return false;
  const together = [...part.form.querySelectorAll(`input[type=radio][name="${part.name}"]`)];
  return part !== (together.find((each) => each.checked) ?? together[0]);
};
const isPlace = (part) => !part.disabled && part.tabIndex >= 0 && isShown(part) && !isLeftToArrows(part);
"""
_BEGIN = f"""() => {{ {_PLACES}
  const places = [...document.querySelectorAll(FOCUSABLE)].filter(isPlace);
  window.walk = {{ unreached: new Set(places), reached: new Set(), last: null }};
  const beginning = document.createElement("span");
  beginning.tabIndex = -1;
  document.body.prepend(beginning);
  beginning.focus();
  beginning.remove();
  return window.walk.unreached.size;
}}"""
_LEFT = f"""() => {{ {_PLACES}
  return [...window.walk.unreached].filter((part) => part.isConnected && isPlace(part)).map(named);
}}"""
# The focused element: it must have a focus ring, be on the screen, and not be covered or clipped. `again` is "" at the
# first visit, "still" if the focus has not moved to another element (a time field has several parts), else "again".
_HERE = f"""() => {{ {_PLACES}
  const part = document.activeElement;
  if (!part || part === document.body) return null;
  const walk = (window.walk ??= {{ unreached: new Set(), reached: new Set(), last: null }});
  const again = part === walk.last ? "still" : walk.reached.has(part) ? "again" : "";
  walk.unreached.delete(part);
  walk.reached.add(part);
  walk.last = part;
  const style = getComputedStyle(part);
  const box = part.getClientRects()[0] ?? part.getBoundingClientRect();
  const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2;
  const [x, y] = [middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight)];
  const onTop = document.elementFromPoint(x, y);
  const isSeen = box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
  const isOnTop = onTop && (part.contains(onTop) || onTop.contains(part));
  const beyond = parseFloat(style.outlineOffset) + 1;
  const uncut = {{ left: true, top: true, right: true, bottom: true }};
  for (let around = part.parentElement; around && around !== document.body; around = around.parentElement) {{
    if (getComputedStyle(around).overflow === "visible") continue;
    const hole = around.getBoundingClientRect();
    uncut.left &&= box.left - beyond >= hole.left;
    uncut.top &&= box.top - beyond >= hole.top;
    uncut.right &&= box.right + beyond <= hole.right;
    uncut.bottom &&= box.bottom + beyond <= hole.bottom;
  }}
  const wrong = [];
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) wrong.push("has no ring");
  if (!isSeen) wrong.push("is off the screen");
  else if (!isOnTop) wrong.push(`is covered by ${{named(onTop ?? document.body)}}`);
  if (Object.values(uncut).filter(Boolean).length < 2) wrong.push("has its ring cut off");
  return {{ name: named(part), wrong, again }};
}}"""
# The elements that accept clicks but that Tab does not reach, unless a reachable link has the same target.
_MOUSE_ONLY = f"""() => {{ {_PLACES}
  const led = new Set([...document.querySelectorAll("a[href]")].filter(isPlace).map((link) => link.href));
  const takesClicks = (part) => getComputedStyle(part).cursor === "pointer" && isShown(part);
  const clicked = [...document.querySelectorAll("body *")].filter(takesClicks);
  return clicked.filter((part) => {{
    const place = part.closest(`${{FOCUSABLE}}, label`);
    return !place || (place.tabIndex < 0 && !place.matches("label") && !led.has(place.href));
  }}).map(named);
}}"""


class Keys:
    """The keyboard of a page. Every step checks that the focus is visible."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def go_to(self, wanted: Locator) -> None:
        """Press Tab until `wanted` has the focus, at most once around the page."""
        for _ in range(_MOST):
            self.press("Tab")
            here = self._here()
            # In a field with several parts, Chromium marks the focused part.
            assert here is None or here["again"] == "still" or here["wrong"] == [], here
            if wanted.evaluate("part => part === document.activeElement"):
                return
        raise AssertionError(f"Tab does not come to {wanted}")

    def choose(self, wanted: Locator) -> None:
        """Move the focus to an element and press Enter."""
        self.go_to(wanted)
        self.press("Enter")

    def walk(self) -> list[str]:
        """Walk through the whole page with Tab. Return the problems, and the elements that Tab does not reach."""
        assert self.page.evaluate(_BEGIN) > 0
        wrong: list[str] = []
        for _ in range(_MOST):
            self.press("Tab")
            here = self._here()
            if here is None or here["again"] == "again":
                break
            if not here["again"]:
                wrong += [f"{here['name']} {each}" for each in here["wrong"]]
        return wrong + [f"{name} is not reached" for name in self.page.evaluate(_LEFT)]

    def mouse_only(self) -> list[str]:
        """Return the elements that accept clicks but that the keyboard does not reach."""
        found: list[str] = self.page.evaluate(_MOUSE_ONLY)
        return found

    def _here(self) -> dict[str, Any] | None:
        here: dict[str, Any] | None = self.page.evaluate(_HERE)
        return here
