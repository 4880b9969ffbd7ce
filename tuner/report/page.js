"use strict";
document.documentElement.classList.add("live");
const tip = document.getElementById("tip"), said = document.getElementById("said");

// Charts: what a mark's title says appears beside the pointer, or beside the mark the arrow keys have reached.
for (const chart of document.querySelectorAll("svg.chart")) {
  const marks = [...chart.querySelectorAll("title")].map((title) => {
    const mark = title.parentNode;
    mark.dataset.tip = title.textContent;
    title.remove(); // or the browser's own would cover ours
    return mark;
  });
  let here = -1;
  const show = (mark, x, y) => {
    chart.querySelector(".here")?.classList.remove("here");
    mark.classList.add("here");
    tip.textContent = mark.dataset.tip;
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + box.height + 24 > innerHeight ? y - box.height - 14 : y + 14) + "px";
  };
  const hide = () => {
    chart.querySelector(".here")?.classList.remove("here");
    tip.style.display = "none";
  };
  const visit = (index) => {
    here = (index + marks.length) % marks.length;
    const box = marks[here].getBoundingClientRect();
    show(marks[here], box.right, box.bottom);
    said.textContent = marks[here].dataset.tip;
  };
  chart.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) { here = marks.indexOf(mark); show(mark, event.clientX, event.clientY); } else hide();
  });
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const to = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here < 0 ? -1 : here - 1,
      ArrowUp: here < 0 ? -1 : here - 1, Home: 0, End: -1 }[event.key];
    if (event.key === "Escape") hide();
    else if (to !== undefined && marks.length) { event.preventDefault(); visit(to); }
  });
}

// Tables: a heading sorts by its column, once more the other way; words filter rows that have all of them.
for (const part of document.querySelectorAll(".sortable")) {
  const body = part.querySelector("tbody"), rows = [...body.rows], headings = [...part.querySelectorAll("th")];
  const value = (row, column) => {
    const cell = row.cells[column];
    const sorted = cell.dataset.v ?? cell.textContent;
    if (cell.dataset.v === undefined && cell.className !== "n") return sorted;
    return sorted === "" ? null : Number(sorted);
  };
  const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  headings.forEach((heading, column) => {
    heading.firstChild.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => [value(row, column), row]);
      keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : down ? order(b, a) : order(a, b)));
      body.append(...keyed.map(([, row]) => row));
    });
  });
  const input = part.querySelector("input"), count = part.querySelector(".count");
  const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
  input?.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, index) => { row.hidden = !words.every((word) => texts[index].includes(word)); });
    const left = rows.filter((row) => !row.hidden).length;
    count.textContent = left === rows.length ? `${left} rows` : `${left} of ${rows.length} rows`;
  });
}
