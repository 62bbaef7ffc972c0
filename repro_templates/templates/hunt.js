(() => {
  const $ = (id) => document.getElementById(id);
  const rows = [...$("rows").children];
  const search = () => {
    const wanted = $("filter").value.toLowerCase().trim(), state = $("state").value;
    let shown = 0;
    for (const row of rows) {
      const fits = row.firstElementChild.textContent.toLowerCase().includes(wanted)
        && (!state || row.dataset.states.split(" ").includes(state));
      row.hidden = !fits;
      shown += fits;
    }
    $("found").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} operators`;
  };
  $("filter").addEventListener("input", search);
  $("state").addEventListener("change", search);
  const open = () => {
    const bug = document.getElementById(location.hash.slice(1));
    if (bug && bug.tagName === "DETAILS") bug.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
