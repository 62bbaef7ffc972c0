"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const list = $("list"), view = $("view"), groups = $("groups");
  const all = [...groups.children];
  for (const page of document.querySelectorAll("template.page")) all.push(...page.content.children);
  const SIZE = Math.max(groups.children.length, 1);
  let found = all, page = 0;

  // What a group is searched by: its summary, and its rows with those that are not shown yet.
  const words = new WeakMap();
  const rowsOf = (group) => [
    ...group.querySelectorAll("tbody tr"),
    ...[...group.querySelectorAll("template.more")].flatMap((t) => [...t.content.querySelectorAll("tr")]),
  ];
  const text = (group) => {
    if (!words.has(group)) {
      const rows = rowsOf(group).map((row) => row.textContent).join("\n");
      words.set(group, (group.firstElementChild.textContent + "\n" + rows).toLowerCase());
    }
    return words.get(group);
  };

  const draw = () => {
    const pages = Math.max(Math.ceil(found.length / SIZE), 1);
    page = Math.min(Math.max(page, 0), pages - 1);
    groups.replaceChildren(...found.slice(page * SIZE, (page + 1) * SIZE));
    $("pages").hidden = pages === 1;
    $("page").textContent = `Page ${page + 1} of ${pages}`;
    $("previous").disabled = page === 0;
    $("next").disabled = page === pages - 1;
    $("found").textContent = found.length === all.length ? "" : `${found.length} of ${all.length} bugs`;
  };
  const CHOICES = ["kind", "backend", "state"];
  const search = () => {
    const wanted = $("filter").value.toLowerCase().trim();
    const chosen = CHOICES.map((name) => [name, $(name).value]).filter(([, value]) => value);
    const id = /^#\d+$/.test(wanted) ? new RegExp(wanted + "(?!\\d)") : null;
    found = all.filter((group) => (!wanted || (id ? id.test(text(group)) : text(group).includes(wanted)))
      && chosen.every(([name, value]) => (name === "kind" ? [...group.querySelectorAll("summary .kind")]
        : rowsOf(group).map((row) => row.querySelector("." + name))).some((cell) => cell.textContent === value)));
    page = 0;
    draw();
  };
  let waiting = 0;
  $("filter").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  CHOICES.forEach((name) => $(name).addEventListener("change", search));
  const turn = (by) => { page += by; draw(); window.scrollTo(0, 0); };
  $("previous").addEventListener("click", () => turn(-1));
  $("next").addEventListener("click", () => turn(1));

  groups.addEventListener("click", (event) => {
    const button = event.target.closest(".show-more");
    if (!button) return;
    const group = button.closest(".group"), next = group.querySelector("template.more");
    if (next) {
      group.querySelector("tbody").append(...next.content.querySelectorAll("tr"));
      next.remove();
    }
    if (!group.querySelector("template.more")) button.remove();
  });

  // One failure in full: its template is copied when somebody looks at it.
  let place = 0;
  const show = () => {
    const [, id, part] = /^#(\d+)(-script)?$/.exec(location.hash) ?? [];
    const template = id ? $(`detail-${id}`) : null;
    if (template) {
      if (view.hidden) place = window.scrollY;
      view.replaceChildren(template.content.cloneNode(true));
      view.hidden = false;
      list.hidden = true;
      window.scrollTo(0, 0);
      view.querySelectorAll(".picture").forEach(zoomable);
      const code = part && view.querySelector(".code");
      if (code) {
        code.previousElementSibling.scrollIntoView();
        code.querySelector("pre").focus({ preventScroll: true });
      } else view.querySelector("h2").focus({ preventScroll: true });
    } else if (!view.hidden) {
      view.hidden = true;
      view.replaceChildren();
      list.hidden = false;
      window.scrollTo(0, place);
    }
  };
  window.addEventListener("hashchange", show);
  // Escape leads back to the list, / to the filter; not while somebody types.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    if (event.key === "Escape" && !view.hidden) location.hash = "";
    if (event.key === "/" && !list.hidden) { event.preventDefault(); $("filter").focus(); }
  });

  view.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
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
  });

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

  draw();
  if (all.length === 1) all[0].open = true;
  const details = document.querySelectorAll('template[id^="detail-"]');
  if (details.length === 1 && !location.hash && !document.querySelector(".note") && rowsOf(all[0]).length === 1) {
    history.replaceState(null, "", "#" + details[0].id.slice(7));
  }
  show();
})();
