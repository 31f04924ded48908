// Counts durations on between two pictures of a live page: <b data-seconds="12.3" data-step="-1">12.3 s</b>.
const since = new WeakMap();

function words(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  return whole < 3600
    ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

function show() {
  const now = performance.now();
  for (const each of document.querySelectorAll("[data-seconds]")) {
    if (!since.has(each)) since.set(each, now);
    const passed = (now - since.get(each)) / 1000;
    each.textContent = words(Math.max(0, Number(each.dataset.seconds) + Number(each.dataset.step) * passed));
  }
}

export function tick() {
  if (!document.body.dataset.events) return;
  show();
  setInterval(show, 1000);
}
