"use strict";
(() => {
  const body = document.querySelector("#ops tbody");
  const rows = [...body.rows];
  const find = document.getElementById("find");
  const selects = [...document.querySelectorAll("#ops-tools select")];
  const only = document.getElementById("only");
  const count = document.getElementById("count");
  document.getElementById("ops-tools").hidden = false;

  const narrow = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.dataset.text;
      const hit =
        words.every((word) => text.includes(word)) &&
        (!only.checked || row.dataset.problem === "1") &&
        selects.every((select) => !select.value || row.dataset[select.name].split(" ").includes(select.value));
      row.hidden = !hit;
      shown += hit ? 1 : 0;
    }
    count.textContent = `${shown} of ${rows.length} lines`;
  };
  for (const input of [find, only, ...selects]) input.addEventListener("input", narrow);

  const value = (row, column) => {
    const { key, name } = row.cells[column].dataset;
    if (name !== undefined) return name.toLowerCase();
    if (key === undefined) return row.cells[column].textContent.trim().toLowerCase();
    return key === "" ? null : Number(key);
  };
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" ? a - b : a.localeCompare(b);
  };
  for (const button of document.querySelectorAll("#ops thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of document.querySelectorAll("#ops thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const column = head.cellIndex;
      const known = rows.filter((row) => value(row, column) !== null);
      const unknown = rows.filter((row) => value(row, column) === null);
      known.sort((a, b) => (up ? 1 : -1) * compare(value(a, column), value(b, column)));
      body.append(...known, ...unknown);
    });
  }
  narrow();
})();
