// The pages work without this. It shows times in the viewer's zone too, and loads live pages again.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function dress(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const utc = one.textContent;
    one.textContent = `${local.format(new Date(one.dateTime))} (${utc})`;
  }
  for (const one of root.querySelectorAll("[data-zone]")) one.value = zone || "";
  if (zone) for (const one of root.querySelectorAll("[data-zone-name]")) one.textContent = `in ${zone}`;
}

dress(document);
