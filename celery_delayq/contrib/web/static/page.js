// The pages work without this script. It adds: times and days in the viewer's own zone, charts with
// marks of that zone, the browser's own picker for times, a box that ticks all tasks, a button that
// copies an id, pages that load anew by themselves, and the press of "Continue" while many tasks are
// changed.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const format = (options) => new Intl.DateTimeFormat(undefined, options);
const local = format({ dateStyle: "medium", timeStyle: "medium" });
const clock = format({ hour: "2-digit", minute: "2-digit" });
const seconds = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const near = format({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const far = format({ dateStyle: "medium", timeStyle: "short" });
const day = format({ weekday: "long", day: "numeric", month: "long" });
const farDay = format({ weekday: "long", day: "numeric", month: "long", year: "numeric" });
const weekday = format({ weekday: "short" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const HOUR = 3_600_000;

function daysFrom(time) {
  const midnight = (moment) => new Date(moment).setHours(0, 0, 0, 0);
  return Math.round((midnight(time) - midnight(Date.now())) / (24 * HOUR));
}

// "today", "tomorrow" and "yesterday" in the viewer's language; nothing for other days.
function nearDay(time) {
  const days = daysFrom(time);
  return Math.abs(days) <= 1 ? relative.format(days, "day") : "";
}

const isThisYear = (time) => time.getFullYear() === new Date().getFullYear();

function nearTime(time) {
  const word = nearDay(time);
  if (word) return `${word} ${clock.format(time)}`;
  return (isThisYear(time) ? near : far).format(time);
}

const forms = {
  near: nearTime,
  clock: (time) => clock.format(time),
  seconds: (time) => seconds.format(time),
  day: (time) => [nearDay(time), (isThisYear(time) ? day : farDay).format(time)].filter(Boolean).join(", "),
};

function dress(root) {
  for (const list of root.querySelectorAll(".list tbody")) regroup(list);
  for (const one of root.querySelectorAll("time[datetime]")) {
    const time = new Date(one.dateTime);
    const form = forms[one.dataset.form];
    one.title = one.textContent;
    if (form) {
      one.textContent = form(time);
    } else if (time.getTimezoneOffset()) {
      const utc = document.createElement("span");
      utc.className = "utc";
      utc.textContent = one.title;
      one.replaceChildren(local.format(time), " ", utc);
    }
  }
  for (const one of root.querySelectorAll("svg[data-chart]")) dressChart(one);
  for (const one of root.querySelectorAll("[data-peak]")) one.textContent = peakOf(one.dataset);
  if (!zone) return;
  for (const one of root.querySelectorAll("input[data-zone]")) one.value = zone;
  for (const one of root.querySelectorAll("[data-zone-name]")) one.textContent = `in ${zone}`;
  // What these links mean by a day is the viewer's.
  for (const one of root.querySelectorAll('a[href*="/load?"], a[href*="due="]')) {
    const there = new URL(one.getAttribute("href"), location);
    if (!there.searchParams.get("zone")) there.searchParams.set("zone", zone);
    one.setAttribute("href", there.pathname + there.search);
  }
}

// Puts the rows of a list below the days of the viewer's zone.
function regroup(list) {
  const days = [...list.querySelectorAll(".day")];
  if (!days.length) return;
  const heads = days.map((one) => (one.remove(), one));
  let last = null;
  for (const row of [...list.rows]) {
    const time = row.querySelector(".clock time");
    const begins = time ? new Date(time.dateTime).toDateString() : "";
    if (begins === last) continue;
    last = begins;
    const head = heads.length ? heads.shift() : days[0].cloneNode(true);
    if (time) {
      const its = document.createElement("time");
      its.dateTime = time.dateTime;
      its.dataset.form = "day";
      its.textContent = time.dateTime;
      head.firstElementChild.replaceChildren(its);
    }
    row.before(head);
  }
}

function peakOf({ peak, begin, end }) {
  const count = Number(peak).toLocaleString("en");
  const [from, to] = [new Date(begin), new Date(end)];
  if (to - from <= 60_000) return `${count} at ${clock.format(from)}`;
  return `${count} from ${clock.format(from)} to ${clock.format(to)}`;
}

// Moves the marks of a chart to the hours and days of the viewer's zone, as many as have room.
function dressChart(chart) {
  const begin = new Date(chart.dataset.begin), end = new Date(chart.dataset.end);
  const hours = (end - begin) / HOUR, marks = chart.querySelector(".marks");
  const write = hours > 48 ? weekday : clock;
  const minutes = hours > 48 ? 1440 : hours > 2 ? 180 : 10;
  const moments = [];
  const moment = new Date(begin);
  moment.setHours(0, 0, 0, 0);
  while (moment < end) {
    if (moment > begin) moments.push(new Date(moment));
    if (minutes === 1440) moment.setDate(moment.getDate() + 1);
    else moment.setMinutes(moment.getMinutes() + minutes);
  }
  const letters = Math.max(...moments.map((one) => write.format(one).length));
  const room = (chart.clientWidth || 320) / (letters * 7 + 14);
  const step = Math.max(1, Math.ceil(moments.length / room));
  const shown = moments.filter((one, at) => at % step === 0 && end - one > 0.03 * (end - begin));
  marks.replaceChildren(...shown.map((one) => {
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
    const place = 100 * (one - begin) / (end - begin);
    text.setAttribute("x", `${place}%`);
    text.setAttribute("y", "100%");
    text.setAttribute("dy", 17);
    text.setAttribute("class", "mid");
    text.textContent = write.format(one);
    return text;
  }));
  for (const bar of chart.querySelectorAll("a")) {
    const { begin: from, end: to } = bar.querySelector("rect").dataset;
    const title = bar.querySelector("title");
    const count = title.textContent.split(",").slice(0, -1).join(",");
    title.textContent = `${count}, ${nearTime(new Date(from))} to ${clock.format(new Date(to))}`;
  }
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
  const words = document.createElement("span");
  words.className = "hidden";
  words.textContent = "Tick all";
  label.append(all, words);
  place.replaceChildren(label);
}

function addCopy(place) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain small";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(place.textContent);
    button.textContent = "Copied";
  });
  if (navigator.clipboard) place.after(" ", button);
}

// Loads the state in the head anew, and where a page asks for it, the whole page. A page that gets
// no answer twice says so, and since when. An answer that is not these pages' own, as of a login,
// leads to a reload; but not the error of a proxy in front of a server that is away.
function keepLive(state, main) {
  const isWhole = "refresh" in main.dataset;
  const every = Number(main.dataset.refresh || 15);
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
    document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").href;
  }

  function say() {
    const sentence = document.createElement("strong");
    sentence.className = "badge dot red";
    sentence.setAttribute("role", "alert");
    sentence.textContent = `No answer since ${seconds.format(answered)}`;
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

  // The next time counts from the last answer: a far Redis is never asked twice at once.
  const again = () => setTimeout(() => load().finally(again), 1000 * every);
  again();
  if (!isWhole) return;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Stop refreshing";
  button.addEventListener("click", () => {
    isLive = !isLive;
    button.textContent = isLive ? "Stop refreshing" : "Refresh again";
  });
  button.className = "plain small";
  state.before(button);
}

dress(document);
for (const one of document.querySelectorAll("input[data-time]")) addPicker(one);
for (const one of document.querySelectorAll("[data-tick-all]")) tickAll(one);
for (const one of document.querySelectorAll("[data-copy]")) addCopy(one);
for (const one of document.querySelectorAll("#state")) keepLive(one, document.querySelector("main"));
for (const one of document.querySelectorAll("a[data-follow]")) location.replace(one.href);
// The server sets this only on pages that were reached from these pages.
for (const one of document.querySelectorAll("form[data-press]")) one.requestSubmit();
