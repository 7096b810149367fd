"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const root = document.documentElement;
  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  let theme = wantsDark.matches ? "dark" : "light";

  const make = (tag, text) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  // Where there is no room for all names only the setting to use has its own; a tap shows the others.
  const narrowed = (trace, width) => trace.customdata && width < 600
    ? { ...trace, textposition: "middle right", text: trace.text.map((name, n) => trace.marker.size[n] > 10 ? name : "") }
    : trace;
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
      place.style.height = `${layout.height}px`;
      layout.autosize = true;
      layout.colorway = ["--accent", "--poor", "--good", "--bad", "--soft"].map(colour);
      for (const axis of [layout.xaxis, layout.yaxis]) axis.gridcolor = axis.zerolinecolor = colour("--line");
      for (const line of layout.shapes || []) line.line.color = colour("--bad");
      Plotly.react(place, figure.data.map((trace) => narrowed(trace, place.clientWidth)), layout, { responsive: true, displaylogo: false });
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

  // ---- the source, where the page has its lines
  const lines = (place) => {
    const at = place.lastIndexOf(":"), number = Number(place.slice(at + 1));
    return { number, found: Object.entries(page.sources[place.slice(0, at)] || {}) };
  };
  const excerpt = (pre, place) => {
    const { number, found } = lines(place);
    const near = found.filter(([n]) => Math.abs(n - number) <= 3);
    pre.replaceChildren(...near.map(([n, text]) => {
      const line = make("span", `${n.padStart(4)}  ${text}`);
      if (Number(n) === number) line.className = "here";
      return line;
    }));
    pre.hidden = !near.length;
  };
  for (const pre of document.querySelectorAll("pre[data-source]")) excerpt(pre, pre.dataset.source);

  // ---- the graph around an instruction: two steps up and down, a click goes on from there
  const { headers, rows, filters } = page.instructions;
  const numbers = new Map(rows.map((row, n) => [row.cells[0], n]));
  const readers = rows.map(() => []);
  rows.forEach((row, n) => { for (const r of row.reads) readers[r].push(n); });
  const cell = (row, name) => row.cells[headers.indexOf(name)] || "";
  const STEPS = 2, MOST = 6;
  const levelsAround = (at) => {
    const seen = new Set([at]);
    const walk = (step) => {
      const levels = [];
      let last = [at];
      for (let n = 0; n < STEPS && last.length; n++) {
        const next = [...new Set(last.flatMap(step))].filter((x) => !seen.has(x));
        next.forEach((x) => seen.add(x));
        levels.push({ shown: next.slice(0, MOST), more: next.length - MOST });
        last = next.slice(0, MOST);
      }
      return levels.filter((level) => level.shown.length);
    };
    const up = walk((n) => rows[n].reads), down = walk((n) => readers[n]);
    return [...up.reverse(), { shown: [at], more: 0 }, ...down];
  };
  const GOOD = ["bad", "poor", "good"];
  const SVG = "http://www.w3.org/2000/svg";
  const graph = (place, told) => {
    const wires = document.createElementNS(SVG, "svg"), levels = make("div"), about = make("dl");
    const source = make("pre");
    source.className = "source";
    levels.className = "levels";
    place.append(wires, levels, about, source);
    let boxes = new Map();
    const wire = () => {
      const own = place.getBoundingClientRect();
      wires.replaceChildren();
      for (const [n, box] of boxes) {
        for (const r of rows[n].reads) {
          if (!boxes.has(r)) continue;
          const a = boxes.get(r).getBoundingClientRect(), b = box.getBoundingClientRect();
          const [x, y] = [a.left + a.width / 2 - own.left, a.bottom - own.top];
          const [u, v] = [b.left + b.width / 2 - own.left, b.top - own.top];
          const path = document.createElementNS(SVG, "path");
          path.setAttribute("d", `M${x} ${y} C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}`);
          wires.append(path);
        }
      }
    };
    const go = (at, focus) => {
      boxes = new Map();
      levels.replaceChildren(...levelsAround(at).map(({ shown, more }) => {
        const level = make("div");
        for (const n of shown) {
          const row = rows[n], box = make("button", row.cells[0]);
          box.type = "button";
          box.className = n === at ? "self" : "";
          if (row.good !== null) box.dataset.good = GOOD[row.good];
          box.append(make("small", [cell(row, "opcode"), cell(row, "computes in") || cell(row, "type")].join(" ")));
          box.addEventListener("click", () => go(n, true));
          boxes.set(n, box);
          level.append(box);
        }
        if (more > 0) level.append(make("span", `and ${more} more`));
        return level;
      }));
      about.replaceChildren(...headers.flatMap((name, n) => {
        const text = rows[at].cells[n];
        if (!text || !n) return [];
        const item = make("div");
        item.append(make("dt", name), make("dd", text));
        return [item];
      }));
      excerpt(source, at === told ? "" : cell(rows[at], "source"));
      place.hidden = false;
      wire();
      if (focus) boxes.get(at).focus();
    };
    new ResizeObserver(wire).observe(place);
    return go;
  };
  for (const place of document.querySelectorAll(".graph[data-node]")) {
    const at = numbers.get(place.dataset.node);
    if (at === undefined) place.remove();
    else graph(place, at)(at, false);
  }

  // ---- every instruction: filter and search
  const table = document.getElementById("instructions");
  if (!table) return;
  const around = document.getElementById("around"), goAround = graph(around);
  const search = document.getElementById("search"), filter = document.getElementById("filter");
  const body = table.tBodies[0], more = document.getElementById("more");
  const texts = rows.map((row) => row.cells.join("\n").toLowerCase());
  const PAGE = 100;
  let limit = PAGE;
  for (const name of headers) {
    const head = make("th", name);
    head.scope = "col";
    table.tHead.rows[0].append(head);
  }
  for (const name of filters) {
    const option = make("option", name);
    option.value = name;
    filter.append(option);
  }
  const marked = (place, text, wanted) => {
    const at = wanted ? text.toLowerCase().indexOf(wanted) : -1;
    if (at < 0) { place.textContent = text; return; }
    place.append(text.slice(0, at), make("mark", text.slice(at, at + wanted.length)), text.slice(at + wanted.length));
  };
  const fill = () => {
    const wanted = search.value.trim().toLowerCase(), kind = filter.value;
    const found = [];
    rows.forEach((row, n) => {
      if ((kind === filters[0] || row.kinds.includes(kind)) && texts[n].includes(wanted)) found.push(n);
    });
    const part = document.createDocumentFragment();
    for (const n of found.slice(0, limit)) {
      const row = rows[n], line = document.createElement("tr");
      row.cells.forEach((text, column) => {
        const place = make(column ? "td" : "th");
        if (text.length > 40) place.className = "wrap";
        if (column) marked(place, text, wanted);
        else {
          const name = make("button");
          name.type = "button";
          name.className = "show";
          if (row.good !== null) name.dataset.good = GOOD[row.good];
          marked(name, text, wanted);
          name.addEventListener("click", () => {
            goAround(n, true);
            around.scrollIntoView({ block: "nearest" });
          });
          place.scope = "row";
          place.append(name);
        }
        line.append(place);
      });
      part.append(line);
    }
    body.replaceChildren(part);
    more.hidden = found.length <= limit;
    document.getElementById("count").textContent = `${found.length} of ${rows.length} instructions`;
  };
  const seek = (text) => { search.value = text; limit = PAGE; fill(); };
  search.addEventListener("input", () => seek(search.value));
  filter.addEventListener("change", () => { limit = PAGE; fill(); });
  more.addEventListener("click", () => { limit += 5 * PAGE; fill(); });
  for (const button of document.querySelectorAll("[data-scope]")) {
    button.addEventListener("click", (event) => {
      event.preventDefault();
      seek(button.dataset.scope);
      search.scrollIntoView({ block: "center" });
      search.focus();
    });
  }
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape" && document.activeElement === search) { seek(""); search.blur(); }
  });
  fill();
})();
