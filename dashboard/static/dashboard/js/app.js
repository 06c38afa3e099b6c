// The script of every page: it starts the refresh of live parts, relative times, the theme and expandable tables.
import { chooseAll } from "./choosing.js";
import { selectTwo } from "./comparing.js";
import { keepTimesTrue } from "./times.js";
import { sendOffsets } from "./moments.js";
import { expandable } from "./tables.js";
import { themeSwitch } from "./theme.js";
import { startCopying } from "./copy.js";
import { closeMenus } from "./menu.js";
import { expireMessages } from "./messages.js";
import { beat, goOnBelow, keepFocus, keepInput, keepOpen, keepScrolled } from "./live.js";
import { palette } from "./palette.js";
import { keepSession } from "./session.js";
import { becomeThePageItWasSentFrom, sendOnce } from "./sending.js";

keepTimesTrue();
sendOffsets();
themeSwitch(document.getElementById("theme"));
expandable(document);
startCopying();
closeMenus();
expireMessages();
chooseAll(document);
selectTwo(document.getElementById("compare"));
keepOpen();
keepScrolled();
keepFocus();
keepInput();
goOnBelow();
keepSession(document.getElementById("session-over"));
sendOnce();
becomeThePageItWasSentFrom();
beat(document.getElementById("live"));
palette(document.getElementById("palette"));
showWhereOneIs();

// On a phone, the navigation and the tabs are scrollable rows: scroll to the current page.
function showWhereOneIs() {
  for (const link of document.querySelectorAll(".nav [aria-current=page], .tabs [aria-current=page]")) {
    const row = link.parentElement;
    row.scrollLeft = link.offsetLeft - row.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
  }
}

// "/" moves the focus to the search box, as in similar tools.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.getElementById("find")?.focus();
  }
});
