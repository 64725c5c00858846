
// ------------------------------------------------------------------------------ files to download

/** Text that a spreadsheet could take for a formula: it begins so, or with a control character. */
const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\u0000-\u001f\u007f]/;

/** A cell of a CSV file: numbers as they are, text safe for spreadsheets, nothing for null. */
function cell(value) {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(header, found) {
  const lines = found[0].map((_, i) => found.map((column) => cell(column[i])).join(","));
  // The byte order mark makes spreadsheets read UTF-8.
  return "\ufeff" + [header.map(cell).join(","), ...lines, ""].join("\r\n");
}

/** One line per row, with the column names of `dagp predict`. */
function assignments({ row, owner, share, parts }) {
  const header = ["row", "assignment", ...share.map((_, k) => `responsibility_${k}`)];
  const chances = share.map((column) => column.map((v) => (v === null ? null : v / parts)));
  return csv(header, [row || owner.map((_, i) => i), owner, ...chances]);
}

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
