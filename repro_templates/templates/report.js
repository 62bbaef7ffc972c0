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
      words.set(group, [group.firstElementChild.textContent, group.dataset.kind, rows].join("\n").toLowerCase());
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
      && chosen.every(([name, value]) => name === "kind" ? group.dataset.kind === value
        : rowsOf(group).some((row) => row.querySelector("." + name).textContent === value)));
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

  view.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (button) copyCode(button);
  });

  draw();
  if (all.length === 1) all[0].open = true;
  const details = document.querySelectorAll('template[id^="detail-"]');
  if (details.length === 1 && !location.hash && !document.querySelector(".note") && rowsOf(all[0]).length === 1) {
    history.replaceState(null, "", "#" + details[0].id.slice(7));
  }
  show();
})();
