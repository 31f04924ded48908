// Fit, zoom and drag a tree in its box. Without this the box scrolls, and the tree has its own size.
const STEP = 1.25;
const LEAST = 0.25;
const MOST = 3;

export function zoomTrees() {
  const tree = document.getElementById("tree");
  const buttons = document.getElementById("zoom");
  if (!tree || !buttons) return;
  let scale = null; // none was chosen: it fits
  const picture = () => tree.querySelector(".wide svg");
  const show = () => {
    const svg = picture();
    if (!svg?.getClientRects().length) return; // there is none, or the page is narrow and has a list
    const { width, height } = svg.viewBox.baseVal;
    const box = svg.parentElement;
    const style = getComputedStyle(box);
    const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const now = scale ?? Math.min(1, room / width);
    svg.setAttribute("width", String(Math.round(width * now)));
    svg.setAttribute("height", String(Math.round(height * now)));
    svg.dataset.scale = String(now);
  };
  buttons.hidden = false;
  buttons.addEventListener("click", (event) => {
    const way = event.target.closest?.("button")?.dataset.zoom;
    const now = Number(picture()?.dataset.scale ?? 1);
    if (way === "fit") scale = null;
    else if (way) scale = Math.min(MOST, Math.max(LEAST, way === "in" ? now * STEP : now / STEP));
    show();
  });
  // What a link has put in place of the tree is shown at the same scale.
  new MutationObserver(show).observe(tree, { childList: true });
  addEventListener("resize", show);
  show();

  let from = null;
  let moved = false;
  tree.addEventListener("pointerdown", (event) => {
    const box = event.target.closest?.(".wide");
    if (!box || event.button || event.pointerType === "touch") return; // a finger scrolls by itself
    from = { box, x: event.clientX, y: event.clientY, left: box.scrollLeft, top: box.scrollTop };
    moved = false;
  });
  addEventListener("pointermove", (event) => {
    if (!from) return;
    const [right, down] = [event.clientX - from.x, event.clientY - from.y];
    moved ||= Math.abs(right) + Math.abs(down) > 4;
    if (!moved) return;
    from.box.scrollLeft = from.left - right;
    from.box.scrollTop = from.top - down;
  });
  addEventListener("pointerup", () => {
    from = null;
  });
  // The end of a drag is no click on the box below it; links must not be dragged themselves.
  tree.addEventListener("click", (event) => {
    if (moved) event.preventDefault();
    moved = false;
  }, true);
  tree.addEventListener("dragstart", (event) => event.preventDefault());
}
