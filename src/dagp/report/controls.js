
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

/** Draw with the colours of the style sheet, which are others in dark mode and on paper. */
function recolour(light) {
  document.documentElement.classList.toggle("light", light);
  readTheme();
  for (const chart of Object.values(charts)) chart.draw();
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
when("download", "click", () => save("outliers.csv", csv(data.outliers.header, data.outliers.columns)));
when("download-assignments", "click", () => save("assignments.csv", assignments(data.assignments)));
// Browsers restore form values on reload; reset them to the initial state that is drawn.
const beginning = { output: state.output, axis: state.slice.axis, "pair-x": state.pair[0], "pair-y": state.pair[1] };
for (const [id, value] of Object.entries(beginning)) {
  if (document.getElementById(id)) document.getElementById(id).value = value;
}
for (const id of ["show-points", "show-bands"]) document.getElementById(id).checked = true;
sliders();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolour(false));
window.addEventListener("beforeprint", () => recolour(true));
window.addEventListener("afterprint", () => recolour(false));
window.addEventListener(
  "scroll", () => Object.values(charts).forEach((chart) => chart.place()), { passive: true },
);
