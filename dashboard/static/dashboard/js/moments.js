// Write the times of a range with the offset of the page's time zone, so that a shared URL is the same range for everyone.
const DAY_MS = 86400000;
const PATTERN = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?)?/; // zeros at the end may be missing

// The fields of forms have no zone. Forms that are sent by POST keep their values, and the server adds the zone.
export function sendOffsets() {
  document.addEventListener("formdata", ({ target, formData }) => {
    if (target.method !== "get") return;
    for (const { name, value } of target.querySelectorAll("input[type=datetime-local]")) {
      if (value) formData.set(name, withOffset(value, name));
    }
  });
}

// Return a local time, such as `2026-10-25 02:30`, as `2026-10-25T02:30:00+02:00`. If the clocks are set back, a local time
// occurs twice: a range that starts (`since`) there starts at the first one, and it ends (`until`) at the second one.
export function withOffset(local, end) {
  const [, day, minute = "00:00", second = ":00"] = PATTERN.exec(local) ?? [];
  if (!day) return local;
  const text = `${day}T${minute}${second}`;
  const asUtc = Date.parse(`${text}Z`);
  const guess = offsetAt(end === "since" ? asUtc - DAY_MS : asUtc + DAY_MS);
  return text + written(offsetAt(asUtc - guess));
}

// The difference between the page's time zone and UTC at an instant, in milliseconds.
function offsetAt(instant) {
  const timeZone = document.documentElement.dataset.zone;
  const numeric = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
  const format = new Intl.DateTimeFormat("en-US", { timeZone, hourCycle: "h23", ...numeric });
  const { year, month, day, hour, minute, second } = Object.fromEntries(
    format.formatToParts(instant).map(({ type, value }) => [type, Number(value)]),
  );
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(instant / 1000) * 1000;
}

function written(offset) {
  const minutes = Math.round(Math.abs(offset) / 60000);
  const two = (number) => String(number).padStart(2, "0");
  return `${offset < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}
