// The lineage page: draws the graph that stands in the page, and answers clicks and keys.
// Owns the view. Must never make markup out of data: texts are set as texts, and nothing is fetched.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { nodes, edges } = data;
  const at = (id) => document.getElementById(id);
  const stage = at("stage"), canvas = at("canvas"), view = at("view"), panel = at("panel");
  const SVG = "http://www.w3.org/2000/svg";
  const READABLE = 0.62; // below this scale, texts in nodes are smaller than eight pixels
  const ZOOM = { min: 0.02, max: 4 };
  const jobs = new Set(["job", "consumer", "foreign"]);
  const shown = { x: 0, y: 0, scale: 1 };
  let chosen = null;

  // -- small helpers -----------------------------------------------------------------------------
  const make = (name, attributes = {}, ...inner) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inner);
    return made;
  };
  const html = (name, attributes = {}, ...inner) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inner.filter((item) => item !== null && item !== undefined));
    return made;
  };
  const number = (value) => (value === null || value === undefined ? "" : value.toLocaleString("en"));
  const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;
  const time = (text) => (text ? `${text.slice(0, 19).replace("T", " ")}Z` : "");
  const ruler = document.createElement("canvas").getContext("2d");
  const FONT = '"DejaVu Sans", system-ui, sans-serif';
  const widthOf = (text, font) => { ruler.font = font; return ruler.measureText(text).width; };
  // A path by its last part; what is still too long is shortened in the middle: names of one place
  // begin alike, and end in what tells them apart.
  const shorten = (whole, room, font) => {
    if (widthOf(whole, font) <= room) return whole;
    const last = `…/${whole.replace(/\/+$/, "").split("/").pop()}`;
    const text = last.length < whole.length ? last : whole;
    if (widthOf(text, font) <= room) return text;
    let low = 1, high = text.length;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (widthOf(cut(text, middle), font) <= room) low = middle; else high = middle - 1;
    }
    return cut(text, low);
  };
  const cut = (text, count) => `${text.slice(0, Math.ceil(count * 0.4))}…${text.slice(text.length - Math.floor(count * 0.6))}`;

  const headline = (node) => (node.kind === "job" || node.kind === "consumer" ? node.job || node.name : node.name);
  const linkText = (node) => (node.kind === "job" ? `${headline(node)} · ${node.operation}` : headline(node));
  const subline = (node) => {
    if (node.kind === "table") return [plural(node.batches, "batch"), node.rows === null ? "" : `${number(node.rows)} rows`].filter(Boolean).join(" · ");
    if (node.kind === "consumer") return `consumer · ${plural(node.runs, "read")}`;
    if (node.kind === "foreign") return "not through here";
    if (jobs.has(node.kind)) return [node.operation, node.streaming ? "streaming" : "", plural(node.batches, "batch"), failed(node)].filter(Boolean).join(" · ");
    return `${node.members > 1 ? `${number(node.members)} folders` : node.kind} · ${node.namespace}`;
  };
  const failed = (item) => Object.entries(item.states).filter(([state]) => state !== "landed").map(([state, count]) => `${number(count)} ${state}`).join(", ");
  const fullName = (node) => [node.name, node.namespace && `${node.namespace} ${node.dataset}`].filter(Boolean).join("\n");

  // -- drawing -----------------------------------------------------------------------------------
  const bounds = nodes.reduce((box, node) => ({
    left: Math.min(box.left, node.x - node.w / 2), right: Math.max(box.right, node.x + node.w / 2),
    top: Math.min(box.top, node.y - node.h / 2), bottom: Math.max(box.bottom, node.y + node.h / 2),
  }), { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity });
  const into = nodes.map(() => []), out = nodes.map(() => []);
  edges.forEach((edge, place) => { out[edge.from].push(place); into[edge.to].push(place); });

  const drawNode = (node, place) => {
    const left = node.x - node.w / 2, top = node.y - node.h / 2, job = jobs.has(node.kind);
    const group = make("g", {
      class: `node ${node.kind}${place === data.start ? " asked" : ""}`, tabindex: 0, role: "button",
      "data-node": place, "aria-label": `${node.kind} ${node.name}`,
    });
    const title = make("title");
    title.textContent = fullName(node);
    group.append(title, make("rect", { class: "body", x: left, y: top, width: node.w, height: node.h, rx: job ? node.h / 2 : 7 }));
    if (job) group.append(make("circle", { cx: left + 18, cy: node.y, r: 4.5 }));
    else group.append(make("rect", { class: "bar", x: left + 6, y: top + 8, width: 4, height: node.h - 16, rx: 2 }));
    const start = left + (job ? 32 : 19), room = node.w - (job ? 46 : 29);
    const name = make("text", { class: "name", x: start, y: node.y - 3 });
    name.textContent = shorten(headline(node), room, `600 13px ${FONT}`);
    const more = make("text", { class: "more", x: start, y: node.y + 13 });
    more.textContent = shorten(subline(node), room, `11px ${FONT}`);
    group.append(name, more);
    return group;
  };
  const drawEdge = (edge, place) => {
    const line = rounded(edge.points);
    const only = edge.via.length === 1 && edge.via[0] === "run";
    const title = make("title");
    title.textContent = `${nodes[edge.from].name} → ${nodes[edge.to].name}`;
    return make("g", { class: `edge${only ? " run" : ""}`, "data-edge": place, tabindex: -1, role: "button", "aria-label": title.textContent },
      title, make("path", { class: "seen", d: line }), make("path", { class: "grip", d: line }));
  };
  const rounded = (points) => {
    const [first, ...rest] = points;
    let line = `M${first[0]} ${first[1]}`;
    rest.forEach((point, index) => {
      const next = rest[index + 1];
      if (!next) { line += `L${point[0]} ${point[1]}`; return; }
      const before = index ? rest[index - 1] : first;
      const near = toward(point, before), far = toward(point, next);
      line += `L${near[0]} ${near[1]}Q${point[0]} ${point[1]} ${far[0]} ${far[1]}`;
    });
    return line;
  };
  const toward = (from, to) => {
    const long = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1, step = Math.min(8, long / 2);
    return [from[0] + ((to[0] - from[0]) * step) / long, from[1] + ((to[1] - from[1]) * step) / long];
  };
  const drawnEdges = edges.map(drawEdge), drawnNodes = nodes.map(drawNode);
  at("edges").append(...drawnEdges);
  at("nodes").append(...drawnNodes);

  // -- the view ----------------------------------------------------------------------------------
  const room = () => ({ width: stage.clientWidth, height: stage.clientHeight });
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  let drawing = 0;
  const redraw = () => { if (!drawing) drawing = requestAnimationFrame(apply); };
  const apply = () => {
    drawing = 0;
    view.setAttribute("transform", `translate(${shown.x} ${shown.y}) scale(${shown.scale})`);
    canvas.classList.toggle("far", shown.scale < READABLE);
    placeLabels();
    placeMap();
  };
  const zoom = (factor, x = room().width / 2, y = room().height / 2) => {
    const scale = clamp(shown.scale * factor, ZOOM.min, ZOOM.max), by = scale / shown.scale;
    Object.assign(shown, { x: x - (x - shown.x) * by, y: y - (y - shown.y) * by, scale });
    redraw();
  };
  const pan = (x, y) => { shown.x += x; shown.y += y; redraw(); };
  const fit = () => {
    const { width, height } = room(), gap = 56;
    const scale = clamp(Math.min((width - gap) / (bounds.right - bounds.left), (height - 2 * gap) / (bounds.bottom - bounds.top)), ZOOM.min, 1.15);
    Object.assign(shown, { scale, x: width / 2 - ((bounds.left + bounds.right) / 2) * scale, y: height / 2 - ((bounds.top + bounds.bottom) / 2) * scale });
    redraw();
  };
  const centre = (node, scale = Math.max(shown.scale, 0.9)) => {
    const { width, height } = room();
    // A node at the rim of a big drawing is not put in the middle: half of the view would be empty.
    const within = (middle, size, low, high) => (high - low) * scale < size - 80 ? middle : clamp(middle, size - 40 - high * scale, 40 - low * scale);
    Object.assign(shown, { scale, x: within(width / 2 - node.x * scale, width, bounds.left, bounds.right), y: within(height / 2 - node.y * scale, height, bounds.top, bounds.bottom) });
    redraw();
  };
  // From afar, texts stand beside the drawing in a readable size: as many as do not overlap.
  const order = nodes.map((_, place) => place).sort((one, other) => weight(other) - weight(one));
  function weight(place) {
    const node = nodes[place];
    return (place === data.start ? 1e6 : 0) + (node.kind === "table" ? 1e3 : jobs.has(node.kind) ? 0 : 500) + into[place].length + out[place].length;
  }
  const placeLabels = () => {
    const layer = at("labels");
    layer.replaceChildren();
    if (shown.scale >= READABLE) return;
    const { width, height } = room(), taken = [];
    const first = order.filter((place) => drawnNodes[place].matches(".chosen, .hit"));
    const lit = view.classList.contains("picked");
    for (const place of [...first, ...order]) {
      const node = nodes[place];
      if (taken.length >= 160) break;
      if (lit && !drawnNodes[place].classList.contains("lit")) continue;
      const text = shorten(headline(node), 190, `600 11.5px ${FONT}`);
      const wide = widthOf(text, `600 11.5px ${FONT}`) + 8;
      const middle = node.x * shown.scale + shown.x, y = node.y * shown.scale + shown.y - 8;
      if (middle < 0 || middle > width || y < 0 || y + 16 > height) continue;
      const x = clamp(middle - wide / 2, 2, width - wide - 2);
      const box = { left: x, right: x + wide, top: y, bottom: y + 16 };
      if (taken.some((other) => box.left < other.right + 4 && other.left < box.right + 4 && box.top < other.bottom + 2 && other.top < box.bottom + 2)) continue;
      taken.push(box);
      const label = make("text", { x: x + 4, y: y + 12 });
      label.textContent = text;
      layer.append(make("rect", { x, y, width: wide, height: 16, rx: 4 }), label);
    }
  };
  const mapSize = { width: 210, height: 130 };
  const map = at("map");
  const mapScale = Math.min((mapSize.width - 12) / (bounds.right - bounds.left), (mapSize.height - 12) / (bounds.bottom - bounds.top));
  const mapX = (x) => (x - (bounds.left + bounds.right) / 2) * mapScale + mapSize.width / 2;
  const mapY = (y) => (y - (bounds.top + bounds.bottom) / 2) * mapScale + mapSize.height / 2;
  const placeMap = () => {
    const { width, height } = room(), box = at("mapview");
    const left = mapX(-shown.x / shown.scale), top = mapY(-shown.y / shown.scale);
    const sizes = { x: left, y: top, width: (width / shown.scale) * mapScale, height: (height / shown.scale) * mapScale };
    for (const [key, value] of Object.entries(sizes)) box.setAttribute(key, value);
  };
  map.setAttribute("width", mapSize.width);
  map.setAttribute("height", mapSize.height);
  map.toggleAttribute("hidden", nodes.length < 25);
  map.style.display = nodes.length < 25 ? "none" : "";
  nodes.forEach((node) => at("mapnodes").append(make("rect", {
    class: node.kind, x: mapX(node.x - node.w / 2), y: mapY(node.y - node.h / 2),
    width: Math.max(2, node.w * mapScale), height: Math.max(1.5, node.h * mapScale),
  })));

  // -- choosing ----------------------------------------------------------------------------------
  const reach = (start, lists, end) => {
    const met = { nodes: new Set([start]), edges: new Set() }, queue = [start];
    while (queue.length) {
      for (const place of lists[queue.pop()]) {
        met.edges.add(place);
        const next = edges[place][end];
        if (!met.nodes.has(next)) { met.nodes.add(next); queue.push(next); }
      }
    }
    return met;
  };
  const light = (up, down) => {
    view.classList.toggle("picked", up !== null);
    drawnNodes.forEach((drawn, place) => drawn.classList.toggle("lit", up !== null && (up.nodes.has(place) || down.nodes.has(place))));
    drawnEdges.forEach((drawn, place) => {
      drawn.classList.toggle("up", up !== null && up.edges.has(place));
      drawn.classList.toggle("down", up !== null && down.edges.has(place));
      drawn.classList.toggle("lit", up !== null && (up.edges.has(place) || down.edges.has(place)));
    });
  };
  const mark = (drawn) => {
    canvas.querySelectorAll(".chosen").forEach((item) => item.classList.remove("chosen"));
    drawn?.classList.add("chosen");
    chosen = drawn;
    redraw();
  };
  const chooseNode = (place) => {
    light(reach(place, into, "from"), reach(place, out, "to"));
    mark(drawnNodes[place]);
    panel.replaceChildren(...aboutNode(nodes[place], place));
    panel.scrollTop = 0;
  };
  const chooseEdge = (place) => {
    const edge = edges[place];
    const up = reach(edge.from, into, "from"), down = reach(edge.to, out, "to");
    up.edges.add(place);
    light(up, down);
    mark(drawnEdges[place]);
    panel.replaceChildren(...aboutEdge(edge));
    panel.scrollTop = 0;
  };
  const clear = () => {
    light(null, null);
    mark(null);
    panel.replaceChildren(...overview());
  };

  // -- the panel ---------------------------------------------------------------------------------
  const facts = (pairs) => html("dl", {}, ...pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
  const part = (title, ...inner) => [html("h3", {}, title), ...inner];
  const state = (word) => html("span", { class: `state ${word}` }, word);
  const code = (text) => html("code", {}, text);
  // The first characters of a batch are enough for every command.
  const batch = (id) => html("code", { title: id }, id.length > 16 ? `${id.slice(0, 14)}…` : id);
  const goTo = (place) => {
    const link = html("a", { class: "to", role: "button", tabindex: 0 }, linkText(nodes[place]));
    link.addEventListener("click", () => { chooseNode(place); centre(nodes[place]); });
    link.addEventListener("keydown", (event) => { if (event.key === "Enter") link.click(); });
    return link;
  };
  const grid = (heads, rows) => html("table", {}, html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", {}, head)))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...row.map((cell) => html("td", typeof cell === "number" ? { class: "number" } : {}, typeof cell === "number" ? number(cell) : cell ?? ""))))));
  const tallied = (item) => [
    ["batches", number(item.batches)], ["runs", number(item.runs)], ["rows", number(item.rows)],
    ["states", failed(item) && Object.entries(item.states).map(([word, count]) => `${number(count)} ${word}`).join(", ")],
    ["first", time(item.first?.time)], ["last", item.last && html("span", {}, `${time(item.last.time)} `, state(item.last.state))],
  ];
  const aboutNode = (node, place) => {
    const facets = node.facets || {};
    const rows = node.recent.map((item) => [time(item.time), item.batch ? batch(item.batch) : `entry ${item.entry}`, state(item.state), item.rows]);
    return [
      html("h2", {}, node.name),
      html("span", { class: `kind ${node.kind}` }, node.kind === "foreign" ? "written by another engine, not through here" : node.kind),
      facts([
        ["namespace", node.namespace], ["dataset", node.dataset], ["folders", node.members > 1 ? number(node.members) : ""], ["job", node.job], ["operation", node.operation],
        ["owner", facets.owner], ["version", facets.snapshot && code(facets.snapshot)], ["format", facets.format_version && `Iceberg v${facets.format_version}`],
        ["dropped", facets.dropped && html("span", {}, `${time(facets.dropped.time)} `, batch(facets.dropped.batch))], ["earlier names", (facets.earlier_names || []).join(", ")], ["uuid", node.table_uuid && code(node.table_uuid)], ...tallied(node),
      ]),
      ...(rows.length ? part(node.runs > rows.length ? `Newest ${rows.length} of ${number(node.runs)} batches` : "Batches", grid(["time", "batch", "state", "rows"], rows)) : []),
      ...((facets.columns || []).length ? part("Schema", grid(["column", "type"], facets.columns.map((column) => [code(column.name), column.type]))) : []),
      ...(into[place].length ? part("Fed by", html("div", {}, ...links(into[place], "from"))) : []),
      ...(out[place].length ? part("Feeds", html("div", {}, ...links(out[place], "to"))) : []),
    ];
  };
  const links = (list, end) => list.map((place) => html("div", {}, goTo(edges[place][end])));
  const aboutEdge = (edge) => {
    const word = (column) => [column.type.toLowerCase(), (column.subtype || "").toLowerCase().replaceAll("_", " "), column.masking ? "masked" : ""].filter(Boolean).join(" ");
    const rows = edge.columns.map((column) => [code(column.column ?? "every row"),
      html("span", {}, column.input === null ? "" : `${nodes[column.input].name}.`, code(column.field)), word(column)]);
    const unknown = edge.unknown.map((name) => [code(name), html("span", { class: "note" }, "unknown"), "the plan does not tell"]);
    const blind = edge.batches_without_columns;
    const how = { offsets: "its offsets", columns: "the plan of the write", itself: "it rewrites the table", read: "a confirmed read", run: "a confirmed read of the same run" };
    return [
      html("h2", {}, edge.kind === "read" ? "reads" : "writes"),
      facts([["from", goTo(edge.from)], ["to", goTo(edge.to)], ["known by", edge.via.map((via) => how[via]).join(", ")], ...tallied(edge)]),
      ...part("Columns", rows.length + unknown.length ? grid(["column", "rests on", "how"], [...rows, ...unknown]) : html("p", {}, "No columns are on record.")),
      ...(blind ? [html("p", { class: "note" }, `Of ${plural(blind, "batch")} no columns were recorded.`)] : []),
    ];
  };
  const overview = () => {
    const count = (kind) => nodes.filter((node) => node.kind === kind).length;
    const node = nodes[data.start];
    const steps = data.steps.map((step) => [code(`${nodes[step.table]?.name ?? ""}.${step.column}`),
      step.input === null ? html("span", { class: "note" }, "unknown") : html("span", {}, `${nodes[step.input].name}.`, code(step.field ?? "?")),
      step.reason ?? [step.type.toLowerCase(), (step.subtype || "").toLowerCase()].join(" ")]);
    return [
      html("h2", {}, data.title),
      facts([["tables", number(count("table"))], ["jobs", number(count("job"))], ["sources", number(nodes.length - count("table") - nodes.filter((item) => jobs.has(item.kind)).length)],
        ["consumers", number(count("consumer"))], ["not through here", count("foreign") ? number(count("foreign")) : ""],
        ["as of", data.as_of && `${data.as_of.asked} (${time(data.as_of.time)})`], ["entries read", number(data.entries)]]),
      ...(data.cut ? [html("p", { class: "note" }, "There is more than is shown.")] : []),
      ...part("Asked for", goTo(data.start), facts([["batches", number(node.batches)], ["rows", number(node.rows)], ["last", time(node.last?.time)]])),
      ...(steps.length ? part("Columns", grid(["column", "rests on", "how"], steps)) : []),
      html("p", {}, "Click a node for its batches and facets, a line for its columns."),
    ];
  };

  // -- search ------------------------------------------------------------------------------------
  const search = at("search");
  let hits = [], hit = -1;
  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    hits = wanted ? order.filter((place) => [nodes[place].name, nodes[place].job, nodes[place].namespace, nodes[place].dataset,
      ...(nodes[place].facets?.columns || []).map((column) => column.name)].some((text) => text?.toLowerCase().includes(wanted))) : [];
    hit = -1;
    const found = new Set(hits);
    drawnNodes.forEach((drawn, place) => drawn.classList.toggle("hit", found.has(place)));
    at("hits").value = wanted ? `${hits.length} found` : "";
    redraw();
  };
  const nextHit = (step) => {
    if (!hits.length) return;
    hit = (hit + step + hits.length) % hits.length;
    at("hits").value = `${hit + 1} of ${hits.length}`;
    chooseNode(hits[hit]);
    centre(nodes[hits[hit]]);
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { search.value = ""; find(); stage.focus(); }
  });

  // -- mouse, touch, keys ------------------------------------------------------------------------
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { if (event.button === 0) held = { x: event.clientX, y: event.clientY, moved: false, id: event.pointerId }; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const x = event.clientX - held.x, y = event.clientY - held.y;
    if (!held.moved && Math.hypot(x, y) < 4) return;
    if (!held.moved) canvas.setPointerCapture(held.id);
    held = { ...held, x: event.clientX, y: event.clientY, moved: true };
    canvas.classList.add("moving");
    pan(x, y);
  });
  const drop = () => { canvas.classList.remove("moving"); setTimeout(() => { held = null; }); };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("click", (event) => { if (!held?.moved) choose(event.target); });
  const choose = (target) => {
    const node = target.closest("[data-node]"), edge = target.closest("[data-edge]");
    if (node) chooseNode(Number(node.dataset.node));
    else if (edge) chooseEdge(Number(edge.dataset.edge));
    else clear();
  };
  canvas.addEventListener("dblclick", (event) => {
    const node = event.target.closest("[data-node]");
    if (node) centre(nodes[Number(node.dataset.node)], 1.1);
  });
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  const mapTo = (event) => {
    const box = map.getBoundingClientRect();
    const x = (event.clientX - box.left - mapSize.width / 2) / mapScale + (bounds.left + bounds.right) / 2;
    const y = (event.clientY - box.top - mapSize.height / 2) / mapScale + (bounds.top + bounds.bottom) / 2;
    centre({ x, y }, shown.scale);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); mapTo(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons) mapTo(event); });
  const keys = {
    "/": () => { search.focus(); search.select(); }, f: fit, h: () => { chooseNode(data.start); centre(nodes[data.start]); },
    "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), Escape: clear,
    ArrowLeft: () => pan(60, 0), ArrowRight: () => pan(-60, 0), ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
  };
  document.addEventListener("keydown", (event) => {
    if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
    if ((event.key === "Enter" || event.key === " ") && event.target.closest?.(".node, .edge")) { event.preventDefault(); choose(event.target); return; }
    const act = keys[event.key] || keys[event.key.toLowerCase()];
    if (act) { event.preventDefault(); act(); }
  });
  at("in").addEventListener("click", () => zoom(1.25));
  at("out").addEventListener("click", () => zoom(0.8));
  at("fit").addEventListener("click", fit);
  at("home").addEventListener("click", keys.h);
  const theme = (name) => { document.documentElement.dataset.theme = name; };
  at("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  addEventListener("beforeprint", () => { theme("light"); fit(); apply(); });
  addEventListener("resize", redraw);

  // -- start -------------------------------------------------------------------------------------
  at("title").textContent = data.title;
  at("about").textContent = [plural(nodes.length, "node"), plural(edges.length, "edge"), data.as_of ? `as of ${data.as_of.asked}` : "", `ledger of ${plural(data.entries, "entry").replace("entrys", "entries")}`].filter(Boolean).join(" · ");
  const kinds = [...new Set(nodes.map((node) => node.kind))];
  at("legend").append(...kinds.map((kind) => html("li", {}, html("i", { class: kind }), kind)));
  clear();
  fit();
  // A graph that is too big to read at once opens at the table that was asked for.
  if (shown.scale < 0.4) centre(nodes[data.start], 0.9);
})();
