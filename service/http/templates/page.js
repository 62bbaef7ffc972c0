(() => {
  document.documentElement.classList.add("scripted");
  document.querySelectorAll(".picture").forEach(zoomable);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (button) copyCode(button);
  });

  // Back to the list as it was searched, if that is where the reader comes from.
  const up = document.getElementById("up");
  if (up && document.referrer.startsWith(`${location.origin}/bugs?`) && up.getAttribute("href") === "/bugs") {
    up.href = document.referrer;
  }
  // / goes to the search, Escape up; not while somebody types.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    if (event.key === "Escape" && up) up.click();
    if (event.key !== "/") return;
    event.preventDefault();
    const search = document.getElementById("search");
    if (search) search.focus();
    else location.href = "/bugs#search";
  });
  if (location.hash === "#search") document.getElementById("search")?.focus();

  // When something happens, the parts of the page that tell of it are asked for again: markup comes from the server only.
  const { last, about } = document.body.dataset, sign = document.getElementById("stream");
  if (last === undefined || !sign) return;
  let seen = Number(last), stream = null, due = 0;
  const place = (part, held) => [...part.querySelectorAll("a, button, summary, input, [tabindex]")].indexOf(held);
  const refresh = async () => {
    due = 0;
    let next;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok) return;
      next = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      return; // the server is away; the stream says when it is back
    }
    for (const old of document.querySelectorAll("[data-live]")) {
      const now = next.getElementById(old.id), held = old.contains(document.activeElement) && document.activeElement;
      if (!now || now.innerHTML === old.innerHTML || (held && held.matches("input, select, textarea"))) continue;
      const at = held ? place(old, held) : -1;
      old.replaceWith(document.adoptNode(now));
      if (at >= 0) now.querySelectorAll("a, button, summary, input, [tabindex]")[at]?.focus({ preventScroll: true });
    }
  };
  const happened = (event) => {
    seen = Number(event.lastEventId);
    if (about !== undefined && JSON.parse(event.data).bug !== Number(about)) return;
    due ||= setTimeout(refresh, 1000);
  };
  // A browser has few connections to one server: a hidden page needs none.
  const listen = () => {
    stream?.close();
    stream = null;
    sign.hidden = true;
    if (document.hidden) return;
    stream = new EventSource(`/api/v1/events?after=${seen}`);
    stream.addEventListener("open", () => { sign.hidden = false; });
    stream.addEventListener("error", () => { sign.hidden = true; });
    for (const kind of ["capture", "task", "bug", "verified", "fixed", "regressed"]) stream.addEventListener(kind, happened);
  };
  document.addEventListener("visibilitychange", listen);
  window.addEventListener("pagehide", () => stream?.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  listen();
})();
