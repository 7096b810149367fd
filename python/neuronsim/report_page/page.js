"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const root = document.documentElement;
  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  let theme = wantsDark.matches ? "dark" : "light";

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const places = [...document.querySelectorAll("[data-plot]")];
  const drawn = new Set();
  const draw = (wanted) => {
    for (const place of wanted) {
      drawn.add(place);
      const figure = page.plots[place.dataset.plot];
      const layout = structuredClone(figure.layout);
      layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
      layout.font = { color: colour("--front"), family: "system-ui, sans-serif", size: 12 };
      layout.height = figure.height || 360;
      layout.autosize = true;
      for (const axis of [layout.xaxis, layout.yaxis]) axis.gridcolor = axis.zerolinecolor = colour("--line");
      for (const line of layout.shapes || []) line.line.color = colour("--bad");
      Plotly.react(place, figure.data, layout, { responsive: true, displaylogo: false });
    }
  };
  const show = () => { root.dataset.theme = theme; draw(drawn); };
  document.getElementById("theme").addEventListener("click", () => {
    theme = theme === "dark" ? "light" : "dark";
    show();
  });
  wantsDark.addEventListener("change", () => { theme = wantsDark.matches ? "dark" : "light"; show(); });
  show();
  // A plot is drawn when its place comes near, so that the page opens at once.
  const near = new IntersectionObserver((entries) => {
    draw(entries.filter((e) => e.isIntersecting && !drawn.has(e.target)).map((e) => e.target));
  }, { rootMargin: "400px" });
  for (const place of places) near.observe(place);
  window.addEventListener("beforeprint", () => draw(places));

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", () => {
      const code = button.previousElementSibling;
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      const copied = navigator.clipboard ? navigator.clipboard.writeText(code.textContent) : Promise.reject();
      copied.catch(() => document.execCommand("copy")).finally(() => { button.textContent = "Copied"; });
    });
  }

  const table = document.getElementById("instructions");
  if (!table) return;
  const { headers, rows, filters } = page.instructions;
  const search = document.getElementById("search"), filter = document.getElementById("filter");
  const body = table.tBodies[0], more = document.getElementById("more");
  const texts = rows.map((row) => row.cells.join("\n").toLowerCase());
  const PAGE = 100;
  let limit = PAGE;
  for (const name of headers) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    table.tHead.rows[0].append(cell);
  }
  for (const name of filters) {
    const option = document.createElement("option");
    option.value = option.textContent = name;
    filter.append(option);
  }
  const marked = (cell, text, wanted) => {
    const at = wanted ? text.toLowerCase().indexOf(wanted) : -1;
    if (at < 0) { cell.textContent = text; return; }
    const mark = document.createElement("mark");
    mark.textContent = text.slice(at, at + wanted.length);
    cell.append(text.slice(0, at), mark, text.slice(at + wanted.length));
  };
  const fill = () => {
    const wanted = search.value.trim().toLowerCase(), kind = filter.value;
    const found = [];
    rows.forEach((row, n) => {
      if ((kind === filters[0] || row.kinds.includes(kind)) && texts[n].includes(wanted)) found.push(row);
    });
    const part = document.createDocumentFragment();
    for (const row of found.slice(0, limit)) {
      const line = document.createElement("tr");
      row.cells.forEach((text, n) => {
        const cell = document.createElement(n ? "td" : "th");
        if (!n) cell.scope = "row";
        if (text.length > 40) cell.className = "wrap";
        marked(cell, text, wanted);
        line.append(cell);
      });
      part.append(line);
    }
    body.replaceChildren(part);
    more.hidden = found.length <= limit;
    document.getElementById("count").textContent = `${found.length} of ${rows.length} instructions`;
  };
  search.addEventListener("input", () => { limit = PAGE; fill(); });
  filter.addEventListener("change", () => { limit = PAGE; fill(); });
  more.addEventListener("click", () => { limit += 5 * PAGE; fill(); });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape" && document.activeElement === search) { search.value = ""; fill(); search.blur(); }
  });
  fill();
})();
