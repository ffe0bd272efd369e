// Keeps the page up to date: fetches it again and puts the new content in place of the old. A reload does the same.
"use strict";
(() => {
  const EVERY_MILLISECONDS = 5000;
  const AGO = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const content = () => document.querySelector("main");
  const state = () => document.getElementById("state");
  let shown = content().innerHTML;

  function writeTimes() {
    for (const one of document.querySelectorAll("time[datetime]")) {
      const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(one.dateTime)) / 1000));
      if (Number.isNaN(seconds)) continue;
      const [length, unit] = AGO.find(([least]) => seconds >= least) || AGO[3];
      one.textContent = `${Math.floor(seconds / length)} ${unit} ago`;
      one.title = one.dateTime;
    }
  }

  function tell(status, words) {
    state().dataset.state = status;
    const place = state().querySelector("[role=status]"); // a screen reader says what changes there
    if (place.textContent !== words) place.textContent = words;
  }

  // What has the focus, so that it can be found in the new content.
  const named = (one) => [one.tagName, one.id, one.getAttribute("href"), one.parentElement && one.parentElement.id].join(" ");

  function show(made) {
    const opened = [...document.querySelectorAll("details[open]")].map((one) => one.id);
    const focused = content().contains(document.activeElement) && named(document.activeElement);
    content().replaceChildren(...made.childNodes);
    for (const id of opened) if (document.getElementById(id)) document.getElementById(id).open = true;
    const again = focused && [...content().querySelectorAll("a, summary, button")].find((one) => named(one) === focused);
    if (again) again.focus({ preventScroll: true });
  }

  async function refresh() {
    if (document.hidden || document.activeElement.matches("input, select")) return; // somebody writes
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      const [fresh, told] = [made.querySelector("main"), made.getElementById("state")];
      if (!fresh || !told) throw new Error(String(answer.status));
      if (fresh.innerHTML !== shown) {
        shown = fresh.innerHTML;
        show(fresh);
      }
      const [old, time] = [state().querySelector("time"), told.querySelector("time")];
      if (old && time) old.dateTime = time.dateTime;
      tell(told.dataset.state, told.querySelector("[role=status]").textContent);
    } catch {
      tell("old", "not up to date, the page's server does not answer");
    }
    writeTimes();
  }

  setInterval(refresh, EVERY_MILLISECONDS);
  document.addEventListener("visibilitychange", refresh);
  writeTimes();
})();
