// Live pages: fragments over server-sent events. The browser itself connects again and says what it saw last.
import { fetchPage, put } from "./swap.js";

let fetching = false;
let stale = false;

async function refetch() {
  stale = true;
  if (fetching) return;
  fetching = true;
  try {
    while (stale) {
      stale = false;
      const page = await fetchPage(location.href);
      for (const element of document.querySelectorAll("[data-live]")) {
        const there = page.getElementById(element.id);
        if (there) put(element, there.innerHTML);
      }
      // A fleet of thousands changes all the time; a reader does not look more often than this.
      await new Promise((done) => setTimeout(done, 1000));
    }
  } catch {
    // The next event tries again.
  } finally {
    fetching = false;
  }
}

export function watch(address) {
  const said = document.getElementById("said");
  let last = "";
  let first = true;
  const open = () => {
    const stream = new EventSource(last ? `${address}?after=${encodeURIComponent(last)}` : address);
    stream.addEventListener("page", (event) => {
      last = event.lastEventId;
      const { fragments, said: sentence } = JSON.parse(event.data);
      for (const [id, html] of Object.entries(fragments)) {
        if (html === null) {
          // At first too: what changed between the page and this event is not in the page.
          refetch();
          continue;
        }
        const element = document.getElementById(id);
        if (element) put(element, html);
      }
      if (sentence && sentence !== said.textContent && !first) said.textContent = sentence;
      first = false;
      document.documentElement.dataset.live = "on";
    });
    stream.addEventListener("end", () => {
      stream.close();
      document.documentElement.dataset.live = "ended";
      document.querySelector("form.act")?.remove();
    });
    stream.addEventListener("error", () => {
      document.documentElement.dataset.live = "lost";
      // A refused stream (too many are open) is closed for good by the browser; ask again later.
      if (stream.readyState === EventSource.CLOSED) setTimeout(open, 10000);
    });
    addEventListener("pagehide", () => stream.close(), { once: true });
  };
  open();
}
