"use strict";
// On paper nothing can be unfolded.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));

// Sorting and searching the table of clients; without this script it is whole, the worst client first.
(() => {
  const table = document.getElementById("client-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => {
    const cell = row.cells[i];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.toLowerCase();
  };
  heads.forEach((head, i) => {
    if (head.querySelector(".scale")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const way = down ? -1 : 1;
      rows.sort((a, b) => {
        const x = value(a, i), y = value(b, i);
        return x < y ? -way : x > y ? way : 0;
      });
      body.append(...rows);
    });
  });
  if (rows.length > 8) {
    const find = document.createElement("input");
    find.type = "search";
    find.className = "find";
    find.placeholder = "Find a client, device or link";
    find.setAttribute("aria-label", find.placeholder);
    const texts = new Map(rows.map((row) => [row, `${value(row, 0)}\n${value(row, row.cells.length - 1)}`]));
    find.addEventListener("input", () => {
      const wanted = find.value.trim().toLowerCase();
      rows.forEach((row) => { row.hidden = !texts.get(row).includes(wanted); });
    });
    table.closest(".tall").before(find);
  }
})();
