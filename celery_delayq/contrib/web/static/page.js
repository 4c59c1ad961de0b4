// The pages work without this script. It adds six things: times in the viewer's own zone, charts
// that say what a bar means, the browser's own picker for times, a box that ticks all tasks, pages
// that load anew by themselves, and the press of "Continue" while many tasks are changed.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const near = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" });
const HOUR = 3_600_000;

function dress(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const time = new Date(one.dateTime);
    one.title = one.textContent;
    if (one.closest("td, header")) {
      const isNear = time.getFullYear() === new Date().getFullYear();
      one.textContent = (isNear ? near : local).format(time);
      continue;
    }
    if (!time.getTimezoneOffset()) continue;
    const utc = document.createElement("span");
    utc.className = "utc";
    utc.textContent = one.title;
    one.replaceChildren(local.format(time), " ", utc);
  }
  for (const one of root.querySelectorAll("svg[data-chart]")) dressChart(one);
  if (!zone) return;
  for (const one of root.querySelectorAll("input[data-zone]")) one.value = zone;
  for (const one of root.querySelectorAll("[data-zone-name]")) one.textContent = `in ${zone}`;
}

// Moves the marks of a chart to the hours and days of the viewer's zone, and says what a bar means
// that the pointer or the keyboard is on; the arrow keys go from bar to bar.
function dressChart(chart) {
  const begin = new Date(chart.dataset.begin), end = new Date(chart.dataset.end);
  const hours = (end - begin) / HOUR, width = Number(chart.dataset.width);
  const apart = hours <= 1 ? HOUR / 6 : hours <= 24 ? 3 * HOUR : 24 * HOUR;
  const group = chart.querySelector(".marks"), [line, text] = group.children;
  const bars = [...chart.querySelectorAll("a")];
  const readout = chart.parentNode.querySelector(".readout");
  if (line) {
    const moment = new Date(begin);
    moment.setHours(0, 0, 0, 0);
    const marks = [];
    while (moment < end) {
      if (moment > begin) {
        const x = width * (moment - begin) / (end - begin);
        const [its, words] = [line.cloneNode(), text.cloneNode()];
        for (const name of ["x1", "x2"]) its.setAttribute(name, x);
        words.setAttribute("x", x);
        words.textContent = (hours > 24 ? day : clock).format(moment);
        marks.push(its, words);
      }
      if (hours > 24) moment.setDate(moment.getDate() + 1);
      else moment.setTime(moment.getTime() + apart);
    }
    group.replaceChildren(...marks);
  }
  function say(bar) {
    const { begin: from, end: to } = bar.querySelector("rect").dataset;
    const count = bar.querySelector("title").textContent.split(",")[0];
    readout.textContent = `${count}, ${local.format(new Date(from))} to ${clock.format(new Date(to))}`;
  }
  bars.forEach((bar, at) => {
    bar.tabIndex = at ? -1 : 0;
    bar.addEventListener("pointerenter", () => say(bar));
    bar.addEventListener("focus", () => say(bar));
    bar.addEventListener("keydown", (event) => {
      const next = bars[at + { ArrowRight: 1, ArrowLeft: -1 }[event.key]];
      if (!next) return;
      bar.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      event.preventDefault();
    });
  });
}

function addPicker(field) {
  const picker = document.createElement("input");
  picker.type = "datetime-local";
  if (!picker.showPicker) return;
  picker.className = "picker";
  picker.tabIndex = -1;
  picker.setAttribute("aria-label", "The picked time");
  picker.addEventListener("input", () => {
    if (picker.value) field.value = picker.value;
  });
  const button = document.createElement("button");
  button.type = "button";
  button.className = "pick";
  button.textContent = "\u25be";
  button.setAttribute("aria-label", `Pick: ${field.labels[0].textContent}`);
  button.addEventListener("click", () => picker.showPicker());
  field.after(picker, button);
}

function tickAll(place) {
  const all = document.createElement("input");
  all.type = "checkbox";
  all.setAttribute("aria-label", "Tick all tasks on this page");
  all.addEventListener("change", () => {
    for (const one of document.querySelectorAll("input[name=one]")) one.checked = all.checked;
  });
  const label = document.createElement("label");
  label.append(all, " Tick all");
  place.replaceChildren(label);
}

// Loads the state in the head anew, and where a page asks for it, the whole page. A page that gets
// no answer twice says so, and since when. An answer that is not these pages' own, as of a login,
// leads to a reload; but not the error of a proxy in front of a server that is away.
function keepLive(state, main) {
  const isWhole = "refresh" in main.dataset;
  const seconds = Number(main.dataset.refresh || 15);
  const since = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  let isLive = true, lost = 0, answered = new Date();

  function isRead() {
    // Nothing is replaced under the hands of a reader: what is open, focused, or selected.
    const selected = getSelection();
    return main.querySelector("details[open]")
      || main.contains(document.activeElement.closest("main *"))
      || (!selected.isCollapsed && main.contains(selected.anchorNode));
  }

  function show(page) {
    dress(page);
    if (state.textContent !== page.getElementById("state").textContent) {
      state.replaceChildren(...page.getElementById("state").childNodes);
    }
    if (!isWhole || isRead()) return;
    main.replaceChildren(...page.querySelector("main").childNodes);
    document.title = page.title;
  }

  function say() {
    const sentence = document.createElement("strong");
    sentence.className = "problems";
    sentence.setAttribute("role", "alert");
    sentence.textContent = `No answer since ${since.format(answered)}`;
    state.replaceChildren(sentence);
  }

  async function load() {
    if (!isLive || document.hidden) return;
    let response, text;
    try {
      const options = { redirect: "manual", signal: AbortSignal.timeout(10_000) };
      response = await fetch(isWhole ? location.href : state.dataset.url, options);
      text = await response.text();
    } catch {
      response = null;
    }
    const page = response && new DOMParser().parseFromString(text, "text/html");
    if (page && page.getElementById("state")) {
      lost = 0;
      answered = new Date();
      show(page);
    } else if (response && response.status < 500) {
      location.reload();
    } else if ((lost += 1) === 2) {
      say();
    }
    document.body.classList.toggle("stale", lost > 1);
  }

  setInterval(load, 1000 * seconds);
  if (!isWhole) return;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Stop refreshing";
  button.addEventListener("click", () => {
    isLive = !isLive;
    button.textContent = isLive ? "Stop refreshing" : "Refresh again";
  });
  document.querySelector("header").append(button);
}

dress(document);
if (matchMedia("(max-width: 40rem)").matches) {
  for (const one of document.querySelectorAll("[data-fold]")) one.open = !!one.querySelector("[aria-invalid]");
}
for (const one of document.querySelectorAll("input[data-time]")) addPicker(one);
for (const one of document.querySelectorAll("[data-tick-all]")) tickAll(one);
for (const one of document.querySelectorAll("#state")) keepLive(one, document.querySelector("main"));
for (const one of document.querySelectorAll("a[data-follow]")) location.replace(one.href);
// The server sets this only on pages that were reached from these pages.
for (const one of document.querySelectorAll("form[data-press]")) one.requestSubmit();
