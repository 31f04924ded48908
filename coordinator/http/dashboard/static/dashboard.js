// Saves reloads; every page reads and works without it. Nothing here builds HTML from data: fragments come escaped.
import { tick } from "./clock.js";
import { watch } from "./live.js";
import { loadRows } from "./rows.js";
import { swapLinks } from "./swap.js";
import { zoomTrees } from "./zoom.js";

const events = document.body.dataset.events;
if (events) watch(events);
swapLinks();
tick();
loadRows();
zoomTrees();
