// Reads a row of a CSV file into the form. The file stays in the browser; only the row that is asked about is sent.

export function cells(line) {
  const found = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const sign = line[at];
    if (quoted && sign === '"' && line[at + 1] === '"') {
      cell += '"';
      at += 1;
    } else if (sign === '"') quoted = !quoted;
    else if (sign === "," && !quoted) {
      found.push(cell.trim());
      cell = "";
    } else cell += sign;
  }
  return [...found, cell.trim()];
}

export function loadRows() {
  const file = document.getElementById("file");
  const line = document.getElementById("line");
  const said = document.getElementById("file-said");
  if (!file || !line || !said) return;
  let rows = [];
  let header = [];
  const fill = () => {
    const number = Number(line.value);
    const row = rows[number - 1];
    if (!header.length) return;
    if (!row) {
      said.textContent = `There are rows 1 to ${rows.length}.`;
      return;
    }
    const missing = [];
    for (const field of document.querySelectorAll("[data-column]")) {
      const at = header.indexOf(field.dataset.column);
      if (at < 0) missing.push(field.dataset.column);
      else field.value = row[at] ?? "";
    }
    said.textContent = missing.length
      ? `Row ${number} of ${rows.length} is in the form; the file has no ${missing.join(", ")}.`
      : `Row ${number} of ${rows.length} is in the form.`;
  };
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (!chosen) return;
    if (chosen.size > 20e6) {
      said.textContent = "Files of up to 20 MB can be read here.";
      return;
    }
    const lines = (await chosen.text()).split(/\r?\n/).filter((each) => each.trim());
    header = cells(lines[0] ?? "");
    rows = lines.slice(1, 100001).map(cells);
    line.max = String(rows.length);
    fill();
  });
  line.addEventListener("change", fill);
}
