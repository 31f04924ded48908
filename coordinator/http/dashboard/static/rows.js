// Reads a row of a CSV file into the form. The file stays in the browser; only the row that is asked about is sent.
const MOST_BYTES = 20e6;
const MOST_ROWS = 100000;

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

// The text of a file, plain or gzip (by its first two bytes, whatever its name says); null when it is too large.
// What it unpacks to is read piece by piece: a small file may hold a very large one.
async function text(file) {
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isPacked = first === 0x1f && second === 0x8b;
  const stream = isPacked ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let read = "";
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return read + decoder.decode();
    bytes += value.length;
    if (bytes > MOST_BYTES) {
      await reader.cancel();
      return null;
    }
    read += decoder.decode(value, { stream: true });
  }
}

export function loadRows() {
  const file = document.getElementById("file");
  const line = document.getElementById("line");
  const said = document.getElementById("file-said");
  if (!file || !line || !said) return;
  const fields = [...document.querySelectorAll("[data-column]")];
  let rows = [];
  let header = [];
  const fill = () => {
    if (!header.length) return;
    const number = Number(line.value);
    const row = rows[number - 1];
    if (!row) {
      said.textContent = `There are rows 1 to ${rows.length}.`;
      return;
    }
    const missing = [];
    for (const field of fields) {
      const at = header.indexOf(field.dataset.column);
      if (at < 0) missing.push(field.dataset.column);
      else field.value = row[at] ?? "";
    }
    said.textContent = missing.length
      ? `Row ${number} of ${rows.length} is in the form; the file has no ${missing.join(", ")}.`
      : `Row ${number} of ${rows.length} is in the form.`;
  };
  const nothing = "Nothing was put into the form.";
  const read = async (chosen) => {
    let whole;
    try {
      whole = await text(chosen);
    } catch {
      return { fault: `The file could not be read: it is damaged, or not there any more. ${nothing}` };
    }
    if (whole === null) {
      return { fault: `Files of up to ${MOST_BYTES / 1e6} MB, unpacked, can be read here; paste the row instead.` };
    }
    const lines = whole.split(/\r?\n/).filter((each) => each.trim());
    const names = cells(lines[0] ?? "");
    if (!fields.some((field) => names.includes(field.dataset.column))) {
      const some = fields.slice(0, 3).map((field) => field.dataset.column);
      const list = some.join(", ") + (fields.length > some.length ? " and so on" : "");
      return { fault: `This is no CSV file with the model's columns: its first line names none of ${list}. ${nothing}` };
    }
    if (lines.length < 2) return { fault: `The file has a header and no rows. ${nothing}` };
    return { names, found: lines.slice(1, MOST_ROWS + 1).map(cells) };
  };
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (!chosen) return;
    header = [];
    rows = [];
    said.textContent = "Reading …";
    const { fault, names, found } = await read(chosen);
    // Another file may have been chosen meanwhile: it is the one to speak of.
    if (file.files[0] !== chosen) return;
    if (fault) {
      said.textContent = fault;
      return;
    }
    header = names;
    rows = found;
    line.max = String(rows.length);
    fill();
  });
  line.addEventListener("change", fill);
}
