"use strict";
// A picture of a graph that can be zoomed, moved and searched, also from the keyboard.
function zoomable(figure) {
  const canvas = figure.querySelector(".canvas"), svg = canvas.querySelector("svg");
  if (!svg) return;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const culprits = [...svg.querySelectorAll("g.culprit")];
  let scale = 1, at = -1;
  // The point of the picture that lies at (x, y) of the canvas stays there.
  const zoom = (to, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    const free = () => Math.max(canvas.clientWidth - width * scale, 0) / 2;
    const left = (canvas.scrollLeft + x - free()) / scale, top = (canvas.scrollTop + y) / scale;
    scale = Math.min(Math.max(to, 0.02), 4);
    svg.setAttribute("width", width * scale);
    svg.setAttribute("height", height * scale);
    canvas.scrollLeft = left * scale - x + free();
    canvas.scrollTop = top * scale - y;
  };
  const fitting = () => Math.min(canvas.clientWidth / width, canvas.clientHeight / height, 1) * 0.99;
  // A small graph needs no high frame.
  canvas.style.height = `${Math.min(canvas.clientHeight, height * Math.min(canvas.clientWidth / width, 1) + 20)}px`;
  const centre = (node) => {
    if (scale < 0.6) zoom(1);
    const box = node.getBoundingClientRect(), frame = canvas.getBoundingClientRect();
    canvas.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
    canvas.scrollTop += box.top + box.height / 2 - frame.top - frame.height / 2;
  };
  const next = () => {
    if (!culprits.length) return;
    at = (at + 1) % culprits.length;
    centre(culprits[at]);
  };
  const find = figure.querySelector(".find");
  if (find) {
    const boxes = [...svg.querySelectorAll("g[data-n]")], said = figure.querySelector(".matches");
    const shown = (node) => [...node.querySelectorAll("text")].map((line) => line.textContent).join(" ").toLowerCase();
    let matches = [], which = -1;
    const turn = (by) => {
      matches[which]?.classList.remove("at");
      if (matches.length) {
        which = (which + by + matches.length) % matches.length;
        matches[which].classList.add("at");
        centre(matches[which]);
      }
      said.textContent = find.value ? `${matches.length ? which + 1 : 0} of ${matches.length}` : "";
    };
    find.addEventListener("input", () => {
      matches.forEach((node) => node.classList.remove("match", "at"));
      const wanted = find.value.toLowerCase().trim();
      matches = wanted ? boxes.filter((node) => shown(node).includes(wanted)) : [];
      matches.forEach((node) => node.classList.add("match"));
      which = -1;
      turn(1);
    });
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") turn(event.shiftKey ? -1 : 1);
      if (event.key === "Escape" && !find.value) canvas.focus();
    });
  }
  const acts = {
    in: () => zoom(scale * 1.3), out: () => zoom(scale / 1.3), fit: () => zoom(fitting()), one: () => zoom(1),
    culprit: next, find: () => find?.focus(),
  };
  const keys = { "+": "in", "=": "in", "-": "out", "0": "fit", "1": "one", c: "culprit", f: "find" };
  figure.querySelector(".tools").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) acts[button.dataset.zoom]();
  });
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : acts[keys[event.key]];
    if (act) { event.preventDefault(); act(); }
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = canvas.getBoundingClientRect();
    zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return;
    held = { x: event.clientX, y: event.clientY, left: canvas.scrollLeft, top: canvas.scrollTop, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const x = event.clientX - held.x, y = event.clientY - held.y;
    if (!held.moved && Math.abs(x) + Math.abs(y) > 4) {
      held.moved = true;
      canvas.setPointerCapture(event.pointerId);
      canvas.classList.add("held");
    }
    if (held.moved) { canvas.scrollLeft = held.left - x; canvas.scrollTop = held.top - y; }
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = held && held.moved;
    held = null;
    canvas.classList.remove("held");
    if (!moved) near(event.target.closest("g[data-n]"));
  });
  // A click on a node shows what it reads and who reads it.
  const near = (node) => {
    svg.querySelectorAll(".near").forEach((item) => item.classList.remove("near"));
    if (!node) return;
    node.classList.add("near");
    const number = node.dataset.n;
    for (const path of svg.querySelectorAll("path[data-e]")) {
      if (path.dataset.e.split(" ").includes(number)) path.classList.add("near");
    }
  };
  // A picture that would be unreadable as a whole is shown from its culprit on.
  const large = fitting() < 0.3;
  zoom(large ? Math.min(Math.max(canvas.clientWidth / width * 0.99, 0.5), 1) : fitting());
  if (large) next();
  else canvas.scrollTop = 0;
}

// Copies the code under a button, or selects it where that cannot be done.
async function copyCode(button) {
  const code = button.closest(".code").querySelector("code");
  let done = true;
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
