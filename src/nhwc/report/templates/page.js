"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const text = (index) => data.strings[index];
  const row = (call) => data.calls[call];
  const [PHASE, OPERATOR, MODULE, TYPE, INPUT, OUTPUT, STRIDES, FORMAT, MS, SOURCE] = [...Array(10).keys()];
  const made = (tag, content, className) => {
    const element = document.createElement(tag);
    if (content !== undefined) element.textContent = content;
    if (className) element.className = className;
    return element;
  };
  for (const element of document.querySelectorAll(".js")) element.hidden = false;

  // Theme: auto, light, dark.
  const theme = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3];
    document.documentElement.dataset.theme = next;
    theme.lastElementChild.textContent = next;
  });

  // The strip: one tab stop, arrow keys within, details of the square below.
  const inspector = document.getElementById("inspector");
  let shown = null;
  const inspect = (cell) => {
    if (cell === shown) return;
    shown?.classList.remove("here");
    shown?.removeAttribute("aria-describedby");
    shown = cell;
    cell.classList.add("here");
    cell.setAttribute("aria-describedby", "inspector");
    const call = row(cell.dataset.c);
    const title = made("p");
    title.append(made("b", text(call[MODULE]), "code"), ` ${text(call[TYPE])}`);
    const output = made("p");
    output.append(made("span", text(call[OPERATOR]), "code"), " wrote ", made("span", text(call[OUTPUT]), "code"));
    if (text(call[STRIDES])) output.append(", strides ", made("span", text(call[STRIDES]), "code"));
    output.append(`: ${text(call[FORMAT])}`);
    const costs = [...cell.parentElement.querySelectorAll(".bar")].map((bar) => bar.getAttribute("aria-label"));
    const cost = made("p", costs.join("; "));
    if (cell.parentElement.querySelector(".bar:not(.note)")) cost.className = "cost";
    const planned = cell.parentElement.querySelector(".plan")?.getAttribute("aria-label");
    inspector.replaceChildren(title, output, cost);
    if (planned) inspector.append(made("p", `The plan: ${planned}`));
  };
  const rows = (cells) => {
    const lines = [];
    for (const cell of cells) {
      const top = Math.round(cell.getBoundingClientRect().bottom);
      if (!lines.length || Math.abs(lines.at(-1).top - top) > 8) lines.push({ top, cells: [] });
      lines.at(-1).cells.push(cell);
    }
    return lines;
  };
  const vertical = (cells, from, step) => {
    const lines = rows(cells);
    const here = lines.findIndex((line) => line.cells.includes(from));
    const line = lines[here + step];
    if (!line) return from;
    const left = from.getBoundingClientRect().left;
    const away = (cell) => Math.abs(cell.getBoundingClientRect().left - left);
    return line.cells.reduce((best, cell) => (away(cell) < away(best) ? cell : best));
  };
  for (const strip of document.querySelectorAll(".strip")) {
    const cells = [...strip.querySelectorAll("button.cell")];
    if (!cells.length) continue;
    const move = (to) => {
      for (const cell of strip.querySelectorAll('button.cell[tabindex="0"]')) cell.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    };
    cells[0].tabIndex = 0;
    strip.addEventListener("keydown", (event) => {
      const at = cells.indexOf(event.target);
      if (at < 0) return;
      const targets = {
        ArrowRight: () => cells[Math.min(at + 1, cells.length - 1)],
        ArrowLeft: () => cells[Math.max(at - 1, 0)],
        ArrowDown: () => vertical(cells, event.target, 1),
        ArrowUp: () => vertical(cells, event.target, -1),
        Home: () => cells[0],
        End: () => cells.at(-1),
      };
      if (!targets[event.key]) return;
      event.preventDefault();
      move(targets[event.key]());
    });
    for (const kind of ["pointerover", "focusin"]) {
      strip.addEventListener(kind, (event) => {
        const cell = event.target.closest("li")?.querySelector("button.cell");
        if (cell) inspect(cell);
      });
    }
    strip.addEventListener("click", (event) => {
      const cell = event.target.closest("button.cell");
      if (cell) cell.parentElement.querySelector("a.bar")?.click();
    });
  }
  const first = document.querySelector(".strip li:has(.bar:not(.note)) button.cell") ?? document.querySelector(".strip button.cell");
  if (first) inspect(first);

  // A link to a culprit opens it, and puts the keyboard there.
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.tagName === "DETAILS") {
      target.open = true;
      target.querySelector("summary").focus({ preventScroll: true });
    }
    target.scrollIntoView({ block: "start" });
  };
  addEventListener("hashchange", open);
  document.addEventListener("click", (event) => {
    const bar = event.target.closest("a.bar");
    if (bar && bar.getAttribute("href") === location.hash) open();
  });
  open();

  // Every operator call: made when asked for, two hundred rows at a time.
  const table = document.getElementById("rows");
  const filter = document.getElementById("filter");
  const more = document.getElementById("more");
  const count = document.getElementById("matches");
  const step = 200;
  let matching = [];
  const line = (index) => {
    const call = row(index);
    const element = made("tr");
    element.append(made("td", index, "n"), made("td", text(call[PHASE])));
    for (const column of [OPERATOR, MODULE, INPUT, OUTPUT, STRIDES]) element.append(made("td", text(call[column]), "code"));
    element.append(made("td", text(call[FORMAT])), made("td", call[MS] ?? "–", "n"), made("td", text(call[SOURCE]), "code"));
    return element;
  };
  const grow = () => {
    const from = table.childElementCount;
    table.append(...matching.slice(from, from + step).map(line));
    more.hidden = table.childElementCount >= matching.length;
    count.textContent = `${matching.length} of ${data.calls.length}`;
  };
  const search = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const strings = data.strings.map((string) => string.toLowerCase());
    const columns = [PHASE, OPERATOR, MODULE, TYPE, INPUT, OUTPUT, STRIDES, FORMAT, SOURCE];
    matching = [...data.calls.keys()].filter((index) =>
      words.every((word) => columns.some((column) => strings[row(index)[column]].includes(word))));
    table.replaceChildren();
    grow();
  };
  document.getElementById("calls").addEventListener("toggle", () => { if (!table.childElementCount) search(); });
  filter.addEventListener("input", search);
  more.addEventListener("click", grow);

  addEventListener("beforeprint", () => {
    for (const element of document.querySelectorAll("details.culprit")) element.open = true;
  });
})();
