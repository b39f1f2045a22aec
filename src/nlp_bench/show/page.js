// Filters, sorts and groups the table of all runs. Without this script the page is whole: the table is plain, nothing is hidden.
const table = document.getElementById("runs");
const body = table ? table.tBodies[0] : null;
const rows = body ? Array.from(body.rows) : [];
const order = new Intl.Collator(undefined, { numeric: true });
const fields = ["find", "dialect", "model", "group"].map((name) => document.getElementById(name)).filter(Boolean);
const outcomes = new Set();
let sorted = null; // { column, isNumber, direction }

function cell(row, column) {
  let place = column;
  return Array.from(row.cells).find((each) => (place -= each.colSpan) < 0);
}

function key(row) {
  const text = cell(row, sorted.column).textContent.trim();
  if (text === "") return null;
  if (!sorted.isNumber) return text;
  return Number.isNaN(Number(text)) ? null : Number(text); // the reason stands in the place of a number
}

function compare(a, b) {
  // What is missing stands last in both directions.
  if (a === null || b === null) return (a === null) - (b === null);
  return sorted.direction * (sorted.isNumber ? a - b : order.compare(a, b));
}

function value(name) {
  const field = document.getElementById(name);
  return field ? field.value.trim() : "";
}

function matches(row) {
  const words = value("find").toLowerCase().split(/\s+/).filter(Boolean);
  const text = row.textContent.toLowerCase();
  return (outcomes.size === 0 || outcomes.has(row.dataset.outcome)) && words.every((word) => text.includes(word)) &&
    ["dialect", "model"].every((name) => value(name) === "" || row.dataset[name] === value(name));
}

function grouped(found) {
  const by = value("group");
  if (by === "") return found;
  const groups = new Map();
  for (const row of found) groups.set(row.dataset[by], [...(groups.get(row.dataset[by]) || []), row]);
  return Array.from(groups.keys()).sort(order.compare).flatMap((name) => {
    const members = groups.get(name);
    const heading = document.createElement("th");
    heading.scope = "rowgroup";
    heading.colSpan = table.tHead.rows[0].cells.length;
    heading.textContent = `${by} ${name || "unknown"}: ${members.length}`;
    const line = document.createElement("tr");
    line.className = "group";
    line.append(heading);
    return [line, ...members];
  });
}

function arrange() {
  const found = rows.filter(matches);
  if (sorted) {
    const keys = new Map(found.map((row) => [row, key(row)]));
    found.sort((a, b) => compare(keys.get(a), keys.get(b)));
  }
  body.replaceChildren(...grouped(found));
  const there = new Set(found);
  for (const row of rows) {
    const details = document.getElementById(row.dataset.run);
    if (details) details.parentElement.hidden = !there.has(row);
  }
  document.getElementById("shown").textContent = `${found.length} of ${rows.length} runs`;
}

function sort(heading, column) {
  const isRising = heading.getAttribute("aria-sort") !== "ascending";
  sorted = { column, isNumber: heading.classList.contains("n"), direction: isRising ? 1 : -1 };
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", isRising ? "ascending" : "descending");
  arrange();
}

function button(place, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.append(...place.childNodes);
  place.append(made);
  made.addEventListener("click", () => act(made));
  return made;
}

if (rows.length > 1) {
  document.getElementById("controls").hidden = false;
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    if (!heading.hasAttribute("data-fixed")) button(heading, () => sort(heading, column));
  });
  const pressed = Array.from(document.querySelectorAll("#counts li"), (item) => {
    const made = button(item, () => {
      const { outcome } = item.dataset;
      if (!outcomes.delete(outcome)) outcomes.add(outcome);
      made.setAttribute("aria-pressed", String(outcomes.has(outcome)));
      arrange();
    });
    made.setAttribute("aria-pressed", "false");
    return made;
  });
  for (const field of fields) field.addEventListener("input", arrange);
  document.getElementById("reset").addEventListener("click", () => {
    for (const field of fields) field.value = "";
    outcomes.clear();
    for (const made of pressed) made.setAttribute("aria-pressed", "false");
    arrange();
  });
  arrange();
}

// A link to a run opens it, and what it lies in.
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  let isClosed = false;
  for (let part = target && target.closest("details"); part; part = part.parentElement.closest("details")) {
    isClosed = isClosed || !part.open;
    part.open = true;
  }
  if (isClosed) target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();
