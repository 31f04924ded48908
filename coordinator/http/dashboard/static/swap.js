// Puts new content into the page and leaves alone what the reader has opened, focused or scrolled.

// What a part is, whatever it counts now: the line of the table it is in, and its summary without numbers. Parts that
// are alike are told apart by their order.
const parts = (root) => {
  const seen = new Map();
  return [...root.querySelectorAll("details")].map((each) => {
    const line = each.closest("tr, li")?.querySelector("th, .nr")?.textContent ?? "";
    const words = (each.querySelector("summary")?.textContent ?? "").replace(/[\d\s.,]+/g, " ").trim();
    const name = `${line}|${words}`;
    const place = (seen.get(name) ?? 0) + 1;
    seen.set(name, place);
    return [`${name}|${place}`, each];
  });
};

export function put(element, html) {
  if (element.innerHTML === html) return;
  const opened = new Map(parts(element).map(([name, each]) => [name, each.open]));
  const scrolled = [...element.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const place = active ? [...element.querySelectorAll("a, button, input, select, summary, [tabindex]")].indexOf(active) : -1;
  const known = new Set([...element.querySelectorAll("[data-node]")].map((each) => each.dataset.node));
  element.innerHTML = html;
  for (const each of known.size ? element.querySelectorAll("[data-node]") : []) {
    if (!known.has(each.dataset.node)) each.classList.add("new");
  }
  for (const [name, each] of parts(element)) each.open = opened.get(name) ?? each.open;
  element.querySelectorAll(".scroll").forEach((each, index) => {
    [each.scrollLeft, each.scrollTop] = scrolled[index] ?? [0, 0];
  });
  if (place >= 0) element.querySelectorAll("a, button, input, select, summary, [tabindex]")[place]?.focus({ preventScroll: true });
}

export async function fetchPage(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Links with data-swap="ID" open in place: the element of that id is taken from the page that they lead to.
export function swapLinks() {
  const show = async (address, id) => {
    const page = await fetchPage(address);
    const [here, there] = [document.getElementById(id), page.getElementById(id)];
    if (!here || !there) return location.assign(address);
    here.innerHTML = there.innerHTML;
    const [trail, newTrail] = [document.getElementById(`${id}-trail`), page.getElementById(`${id}-trail`)];
    if (trail && newTrail) trail.innerHTML = newTrail.innerHTML;
  };
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a[data-swap]");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    const address = link.href?.baseVal ? new URL(link.href.baseVal, location.href).href : link.href;
    const name = link.dataset.branch;
    const id = link.dataset.swap;
    try {
      await show(address, id);
    } catch {
      location.assign(address);
      return;
    }
    history.pushState({ swap: id }, "", address);
    const box = [...document.getElementById(id).querySelectorAll("a[data-branch]")].find(
      // Of picture and list, the one that is shown.
      (each) => each.dataset.branch === name && each.getClientRects().length,
    );
    box?.focus({ preventScroll: true });
    box?.scrollIntoView({ block: "nearest", inline: "center" });
  });
  addEventListener("popstate", () => location.reload());
}
