// Sorts the table of all runs by any column: click, or Enter and Space on the heading. Without this script the page is whole.
const table = document.getElementById("runs");
const body = table ? table.tBodies[0] : null;
const order = new Intl.Collator(undefined, { numeric: true });

function key(row, column, isNumber) {
  const text = row.cells[column].textContent.trim();
  if (text === "") return null;
  return isNumber ? Number(text) : text;
}

function sort(heading, column) {
  const rising = heading.getAttribute("aria-sort") !== "ascending";
  const isNumber = heading.classList.contains("n");
  const rows = Array.from(body.rows, (row) => ({ row, value: key(row, column, isNumber) }));
  const direction = rising ? 1 : -1;
  rows.sort((a, b) => {
    // What is missing stands last in both directions.
    if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
    return direction * (isNumber ? a.value - b.value : order.compare(a.value, b.value));
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
  body.append(...rows.map((item) => item.row));
}

if (body && body.rows.length > 1) {
  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    if (heading.hasAttribute("data-fixed")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(heading, column));
  });
}

// A link to a run opens it, in browsers that do not do so by themselves.
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  const run = target ? target.closest("details") : null;
  if (run && !run.open) {
    run.open = true;
    run.scrollIntoView();
  }
}
addEventListener("hashchange", reveal);
reveal();
