// Keeps the page up to date. It is complete without: a reload shows the same.
"use strict";
(() => {
  const live = document.getElementById("live");
  let busy = false, again = false;

  const AGO = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function ago(text) {
    const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(text)) / 1000));
    if (Number.isNaN(seconds)) return text;
    const [length, unit] = AGO.find(([one]) => seconds >= one) || AGO[3];
    return `${Math.floor(seconds / length)} ${unit} ago`;
  }

  function writeTimes() {
    for (const one of document.querySelectorAll("time[datetime]")) {
      const words = ago(one.dateTime);
      if (one.textContent !== words) one.textContent = words;
      if (one.title !== one.dateTime) one.title = one.dateTime;
    }
  }

  function tell(state, words) {
    if (live.dataset.state === state) return;
    live.dataset.state = state;
    live.textContent = words;
  }

  // Makes one element like another and leaves alone what is alike already: focus, scrolling and opened
  // details stay where they are. Children with the same data-key are the same child.
  function morph(old, made) {
    if (old.isEqualNode(made)) return;
    if (old.nodeName !== made.nodeName || old.nodeType !== Node.ELEMENT_NODE) {
      old.replaceWith(made);
      return;
    }
    if (old.nodeName === "TIME" && old.dateTime === made.dateTime) return;
    const keep = old.hasAttribute("data-keep") ? ["open"] : [];
    for (const { name } of [...old.attributes])
      if (!made.hasAttribute(name) && !keep.includes(name)) old.removeAttribute(name);
    for (const { name, value } of made.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const keyed = new Map();
    for (const one of old.children) if (one.dataset && one.dataset.key) keyed.set(one.dataset.key, one);
    let place = old.firstChild;
    for (const child of [...made.childNodes]) {
      const key = child.dataset && child.dataset.key;
      let mine = key ? keyed.get(key) : place;
      if (!key && mine && (mine.nodeName !== child.nodeName || (mine.dataset && mine.dataset.key))) mine = null;
      if (!mine) {
        old.insertBefore(child, place);
        continue;
      }
      if (mine !== place) old.insertBefore(mine, place);
      place = mine.nextSibling;
      morph(mine, child);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  function show(name, { mark, html }) {
    const old = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (!old) return;
    const template = document.createElement("template");
    template.innerHTML = html;
    const made = old.cloneNode(false);
    made.dataset.mark = mark;
    made.append(template.content);
    const focused = document.activeElement;
    morph(old, made);
    // An element that moved has lost the focus.
    if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  async function refresh() {
    if (busy || document.hidden) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    try {
      const parts = [...document.querySelectorAll("[data-part]")];
      const params = new URLSearchParams(location.search);
      params.set("have", parts.map((one) => `${one.dataset.part}.${one.dataset.mark}`).join(","));
      const answer = await fetch(`/live${location.pathname}?${params}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      for (const [name, part] of Object.entries(await answer.json())) show(name, part);
      writeTimes();
      if (answer.headers.has("X-Stale")) tell("lost", "not up to date: see the overview");
      else tell("live", "live");
    } catch {
      tell("lost", "not up to date: the server does not answer");
    } finally {
      busy = false;
      if (again && !document.hidden) refresh();
    }
  }

  const source = new EventSource("/events");
  source.addEventListener("changed", refresh);
  source.addEventListener("error", () => {
    tell("lost", "not up to date: the connection is lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 15000);
  });
  document.addEventListener("visibilitychange", () => { if (again && !document.hidden) refresh(); });
  setInterval(writeTimes, 5000);
  writeTimes();
})();
