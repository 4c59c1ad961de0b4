// The pages work without this script. It adds five things:
// times in the viewer's own zone, the browser's own picker for times, a box that ticks all tasks,
// pages that load anew by themselves, and the press of "Continue" while many tasks are changed.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function dress(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const time = new Date(one.dateTime);
    if (!time.getTimezoneOffset()) continue;
    const utc = document.createElement("span");
    utc.className = "utc";
    utc.textContent = one.textContent;
    one.replaceChildren(local.format(time), " ", utc);
  }
  if (!zone) return;
  for (const one of root.querySelectorAll("input[data-zone]")) one.value = zone;
  for (const one of root.querySelectorAll("[data-zone-name]")) one.textContent = `in ${zone}`;
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
  button.textContent = "Pick";
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

function keepLive(main) {
  const button = document.createElement("button");
  let isLive = true;
  button.type = "button";
  button.textContent = "Stop refreshing";
  button.addEventListener("click", () => {
    isLive = !isLive;
    button.textContent = isLive ? "Stop refreshing" : "Refresh again";
  });
  document.querySelector("header").append(button);

  async function load() {
    // Nothing is replaced under the hands of a reader: what is open, focused, or selected.
    const selected = getSelection();
    const isRead = main.querySelector("details[open]")
      || main.contains(document.activeElement.closest("main *"))
      || (!selected.isCollapsed && main.contains(selected.anchorNode));
    if (!isLive || document.hidden || isRead) return;
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      main.replaceChildren(...page.querySelector("main").childNodes);
      dress(main);
    } catch {
      // The server is away; the next load may find it again.
    }
  }
  setInterval(load, 1000 * main.dataset.refresh);
}

dress(document);
for (const one of document.querySelectorAll("input[data-time]")) addPicker(one);
for (const one of document.querySelectorAll("[data-tick-all]")) tickAll(one);
for (const one of document.querySelectorAll("main[data-refresh]")) keepLive(one);
for (const one of document.querySelectorAll("a[data-follow]")) location.replace(one.href);
// The server sets this only on pages that were reached from these pages.
for (const one of document.querySelectorAll("form[data-press]")) one.requestSubmit();
