
/** Sliders for the inputs that are not on the axis. */
function sliders() {
  const holder = document.getElementById("sliders");
  if (!holder) return;
  state.held = [...data.typical];
  state.stops = state.slice.sliders.map((s) => nearest(s.stops, data.typical[s.input]));
  holder.replaceChildren(
    ...state.slice.sliders.map((slider, place) => {
      const value = make("output");
      const input = make("input", {
        type: "range", min: 0, max: slider.stops.length - 1, step: 1, value: state.stops[place],
        disabled: slider.stops.length < 2,
      });
      const move = () => {
        state.stops[place] = Number(input.value);
        state.held[slider.input] = slider.stops[state.stops[place]];
        value.textContent = written(state.held[slider.input], slider.input);
        input.setAttribute("aria-valuetext", value.textContent);
      };
      input.addEventListener("input", () => { move(); charts.posterior.draw(); });
      move();
      return make("label", {}, `${data.inputs[slider.input]} = `, value, input);
    }),
  );
  const moved = new Set([state.slice.axis, ...state.slice.sliders.map((s) => s.input)]);
  const rest = data.inputs.flatMap((name, d) => (moved.has(d) ? [] : [`${name} = ${written(data.typical[d], d)}`]));
  const more = rest.length > 8 ? ` and ${rest.length - 8} more` : "";
  document.getElementById("held").textContent = rest.length
    ? `Held at the median: ${rest.slice(0, 8).join(", ")}${more}.` : "";
}

function nearest(stops, value) {
  let best = 0;
  stops.forEach((stop, i) => { if (Math.abs(stop - value) < Math.abs(stops[best] - value)) best = i; });
  return best;
}

function redraw() {
  document.getElementById("tip").hidden = true;
  for (const chart of Object.values(charts)) chart.selected = -1;
  for (const [name, chart] of Object.entries(charts)) if (name !== "gate") chart.draw();
}

function when(id, event, action) {
  const node = document.getElementById(id);
  if (node) node.addEventListener(event, () => action(node));
}

for (const box of document.querySelectorAll("[data-process]")) {
  box.checked = on(Number(box.dataset.process));
  box.addEventListener("change", () => {
    const k = Number(box.dataset.process);
    if (box.checked) state.on.add(k); else state.on.delete(k);
    redraw();
  });
}
for (const id of ["show-points", "show-bands"]) when(id, "change", () => charts.posterior.draw());
when("output", "change", (node) => {
  state.output = Number(node.value);
  for (const chart of Object.values(charts)) chart.view = null;
  redraw();
});
when("axis", "change", (node) => {
  state.slice = data.slices.find((slice) => slice.axis === Number(node.value));
  charts.posterior.view = null;
  sliders();
  charts.posterior.draw();
});
when("pair-x", "change", (node) => choose([Number(node.value), state.pair[1]]));
when("pair-y", "change", (node) => choose([state.pair[0], Number(node.value)]));
when("download", "click", () => {
  const { header, columns: found } = data.outliers;
  const cell = (value) => {
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = found[0].map((_, i) => found.map((column) => cell(column[i])).join(","));
  // The byte order mark makes spreadsheets read UTF-8.
  const text = "\ufeff" + [header.map(cell).join(","), ...lines, ""].join("\r\n");
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = make("a", { href: url, download: "outliers.csv" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
});
// Browsers restore form values on reload; reset them to the initial state that is drawn.
const beginning = { output: state.output, axis: state.slice.axis, "pair-x": state.pair[0], "pair-y": state.pair[1] };
for (const [id, value] of Object.entries(beginning)) {
  if (document.getElementById(id)) document.getElementById(id).value = value;
}
for (const id of ["show-points", "show-bands"]) document.getElementById(id).checked = true;
sliders();
window.addEventListener(
  "scroll", () => Object.values(charts).forEach((chart) => chart.place()), { passive: true },
);
