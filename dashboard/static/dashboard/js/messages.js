// A message that reports a success disappears after a while: "Savepoint requested" is not news once the savepoint is
// complete. Warnings and errors stay. The time counts only while the reader can see the message and does not point at it.
const STEP_MS = 1000;
const STEPS = 30;

export function expireMessages() {
  let left = STEPS;
  const timer = setInterval(() => {
    const fleeting = document.querySelectorAll(".messages [data-expires]");
    if (document.hidden || document.querySelector(".messages [data-expires]:hover")) return;
    left -= 1;
    if (left > 0 && fleeting.length) return;
    clearInterval(timer);
    for (const message of fleeting) message.remove();
    document.querySelector(".messages:empty, .messages:not(:has(li))")?.remove();
  }, STEP_MS);
}
