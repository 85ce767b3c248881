"use strict";

// What a link leads to is unfolded.
(() => {
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
})();

// A kata that is chosen in the graph: what leads to it and what it opens is lit, and the page says what it is.
(() => {
  const graph = document.querySelector(".graph");
  if (!graph) return;
  const said = document.querySelector(".said");
  const nodes = new Map([...graph.querySelectorAll(".node")].map((node) => [node.dataset.kata, node]));
  const edges = [...graph.querySelectorAll("[data-from]")];
  const SVG = "http://www.w3.org/2000/svg";
  const across = document.createElementNS(SVG, "svg");
  across.setAttribute("class", "across");
  across.setAttribute("aria-hidden", "true");
  graph.append(across);
  let chosen = null;

  // All that is reached from a name over edges, from their end `here` to their end `there`.
  const reached = (name, here, there) => {
    const found = new Set([name]);
    for (const each of found)
      for (const edge of edges) if (edge.dataset[here] === each) found.add(edge.dataset[there]);
    return found;
  };
  const middle = (node) => {
    const box = node.getBoundingClientRect(), origin = graph.getBoundingClientRect();
    return [box.x + box.width / 2 - origin.x, box.y + box.height / 2 - origin.y];
  };
  const draw = (lit) => {
    across.replaceChildren();
    for (const edge of edges) {
      if (!edge.classList.contains("far") || !lit(edge)) continue;
      if (!nodes.get(edge.dataset.from).getClientRects().length || !nodes.get(edge.dataset.to).getClientRects().length) continue; // folded
      const [x1, y1] = middle(nodes.get(edge.dataset.from)), [x2, y2] = middle(nodes.get(edge.dataset.to));
      const line = document.createElementNS(SVG, "path");
      line.setAttribute("d", `M${x1} ${y1} C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`);
      across.append(line);
    }
  };
  const show = () => {
    const before = chosen ? reached(chosen, "to", "from") : new Set();
    const after = new Set(chosen ? edges.filter((edge) => edge.dataset.from === chosen).map((edge) => edge.dataset.to) : []);
    const lit = (edge) => (before.has(edge.dataset.from) && before.has(edge.dataset.to)) || edge.dataset.from === chosen;
    graph.classList.toggle("picked", chosen !== null);
    for (const [name, node] of nodes) {
      node.classList.toggle("lit", before.has(name) || after.has(name));
      node.classList.toggle("chosen", name === chosen);
    }
    for (const edge of edges) edge.classList.toggle("lit", chosen !== null && lit(edge));
    draw(chosen ? lit : () => false);
    said.replaceChildren();
    if (!chosen) return;
    const words = document.createElement("p");
    words.textContent = `${nodes.get(chosen).getAttribute("aria-label")}. ${before.size - 1} come before it, ${after.size} right after it.`;
    const link = document.createElement("a");
    link.href = `#kata-${chosen}`;
    link.textContent = "its place in the table";
    words.append(" ", link);
    said.append(words);
  };
  const choose = (name) => { chosen = name; show(); };
  for (const [name, node] of nodes) {
    node.addEventListener("click", (event) => { event.preventDefault(); choose(chosen === name ? null : name); });
    node.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); choose(name); } });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") choose(null); });
  for (const lane of graph.querySelectorAll(".scrolls")) lane.addEventListener("scroll", () => { if (chosen) show(); });
  for (const part of graph.querySelectorAll("details")) part.addEventListener("toggle", () => { if (chosen) show(); });
  addEventListener("resize", () => { if (chosen) show(); });
})();
