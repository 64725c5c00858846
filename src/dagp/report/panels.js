
const data = JSON.parse(document.getElementById("data").textContent);
const points = data.points;
const columns = [...points.x, ...points.y];
const names = [...data.inputs, ...data.outputs];
const on = (k) => state.on.has(k);
const state = {
  on: new Set(data.processes.keys()),
  output: 0,
  slice: data.slices.find((slice) => slice.axis === data.first),
  held: [...data.typical],
  stops: [],
  pair: [data.first, data.inputs.length],
};
const charts = {};

/** The colour of a process. */
const tint = (k) => theme.processes[data.processes[k].shade];

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** A value of a column, with digits enough to tell its values apart. */
function written(value, column) {
  if (value === null) return "missing";
  const [size, span] = [Math.abs(value), spans[column]];
  const digits = Math.min(15, Math.max(5, 4 + Math.ceil(Math.log10(size / span) || 0)));
  const wild = size && (size < 1e-3 || (size >= 1e7 && digits < 8));
  return (wild ? value.toExponential(3) : String(Number(value.toPrecision(digits)))).replace("-", "−");
}

function extent(values, air = 0.04) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) if (v !== null) [low, high] = [Math.min(low, v), Math.max(high, v)];
  return Number.isFinite(low) ? padded(low, high, air) : [0, 1];
}

const spans = columns.map((values) => {
  const [low, high] = extent(values, 0);
  return high - low;
});

/** Past the end of the palette, dashes tell processes of one colour apart. */
const dash = (k) => [[], [8, 4], [2, 3]][Math.floor(k / 8) % 3];

// ------------------------------------------------------------------------------------- points

/** Description of one point: its values and the probability of each process. */
function tell(i) {
  const title = make("strong", { textContent: `Row ${points.row[i]}` });
  const values = make("div");
  names.forEach((name, c) => {
    if (names.length > 8 && c < data.inputs.length) return;
    values.append(make("span", { textContent: name }), make("span", { textContent: written(columns[c][i], c) }));
  });
  const shares = make("div");
  data.processes.forEach((process, k) => {
    const share = points.share[k][i] / 10;
    if (share < 0.1 && data.processes.length > 4) return;
    const fill = make("span");
    fill.style.cssText = `width:${share}%;background:var(--process-${process.shade})`;
    shares.append(
      make("span", { textContent: process.name }),
      make("span", { textContent: `${share.toFixed(1)} %` }),
      make("span", { className: "meter" }, fill),
    );
  });
  return [title, values, shares];
}

function scatter(chart, xs, ys, strength = () => 1) {
  chart.seen = [];
  for (let i = 0; i < xs.length; i++) {
    const k = points.owner[i];
    const alpha = strength(i) * Math.max(points.share[k][i] / 1000, 0.25) * 0.85;
    if (!on(k) || alpha < 0.04 || xs[i] === null || ys[i] === null) continue;
    chart.dot(xs[i], ys[i], rgba(tint(k), alpha.toFixed(2)));
    chart.seen.push({ i, x: xs[i], y: ys[i] });
  }
}

/** Closeness of a point to the slice, from 0 to 1; 1 for all points with a single input. */
function nearness(i) {
  if (data.inputs.length === 1) return 1;
  let sum = 0;
  state.held.forEach((value, d) => {
    if (d !== state.slice.axis) sum += ((points.x[d][i] - value) / data.spread[d]) ** 2;
  });
  return Math.exp(-sum / (data.inputs.length - 1));
}

// ------------------------------------------------------------------------------------- curves

/** Part of a packed array at the sliders' values: the curve `which` of `count`. */
function part(values, which, count) {
  const { sliders: moved, grid } = state.slice;
  const place = moved.reduce((sum, s, i) => sum * s.stops.length + state.stops[i], 0);
  const begin = (place * count + which) * grid.length;
  return values.slice(begin, begin + grid.length);
}

/** Gate weight of any process. */
const weight = (k) => part(state.slice.weight, k, data.processes.length);

/** Curve of a process in use: "mean", "low" or "high". */
function curve(k, name) {
  const used = data.processes.filter((p) => p.curve >= 0).length;
  return part(state.slice[name][state.output], data.processes[k].curve, used);
}

const switchedOn = () => [...data.processes.keys()].filter(on);
const shown = () => switchedOn().filter((k) => data.processes[k].curve >= 0);

charts.posterior = new Chart("posterior", {
  labels: () => [data.inputs[state.slice.axis], data.outputs[state.output]],
  range: () => [extent(state.slice.grid, data.inputs.length > 1 ? 0.02 : 0), extent(points.y[state.output])],
  tell,
  drawn: () => charts.gate && charts.gate.draw(),
  paint(chart) {
    const grid = state.slice.grid;
    const bands = document.getElementById("show-bands").checked;
    for (const k of bands ? shown() : []) {
      chart.band(grid, curve(k, "low"), curve(k, "high"), chart.fade(grid, weight(k), tint(k), 0.28));
    }
    chart.seen = [];
    if (document.getElementById("show-points").checked) {
      scatter(chart, points.x[state.slice.axis], points.y[state.output], nearness);
    }
    for (const k of bands ? shown() : []) {
      if (data.processes[k].clutter) continue; // clutter has no function to draw
      chart.line(grid, curve(k, "mean"), chart.fade(grid, weight(k), tint(k), 1), 2.5, dash(k));
    }
  },
});

charts.gate = new Chart("gate", {
  labels: () => [data.inputs[state.slice.axis], "probability"],
  range: () => [extent(state.slice.grid, 0), [-0.02, 1.02]],
  twin: () => charts.posterior,
  paint(chart) {
    for (const k of switchedOn()) {
      const [width, dots] = data.processes[k].active ? [2.5, dash(k)] : [1.5, [1.5, 3]];
      chart.line(state.slice.grid, weight(k), tint(k), width, dots);
    }
  },
});

// -------------------------------------------------------------------------------------- pairs

if (document.getElementById("pair")) {
  charts.pair = new Chart("pair", {
    labels: () => state.pair.map((c) => names[c]),
    range: () => state.pair.map((c) => extent(columns[c])),
    tell,
    paint: (chart) => scatter(chart, columns[state.pair[0]], columns[state.pair[1]]),
    drawn: thumbs,
  });
}

/** Thumbnails of all pairs, if they are few: a triangle of buttons, with the names on its edge. */
function thumbs() {
  const holder = document.getElementById("thumbs");
  if (names.length > 7) return;
  if (!holder.children.length) {
    holder.style.gridTemplateColumns = `repeat(${names.length}, minmax(0, 1fr))`;
    names.forEach((name, up) => names.forEach((_, across) => {
      const beside = make("span", { textContent: across === up ? name : "" });
      holder.append(across < up ? thumb(across, up) : beside);
    }));
  }
  for (const button of holder.querySelectorAll("button")) {
    const pair = button.dataset.pair.split(",").map(Number);
    button.setAttribute("aria-pressed", String(pair.join() === state.pair.join()));
    small(button.firstChild, pair);
  }
}

function thumb(across, up) {
  const label = `${names[up]} against ${names[across]}`;
  const button = make("button", { type: "button", title: label }, make("canvas"));
  button.setAttribute("aria-label", label);
  button.dataset.pair = [across, up].join();
  button.addEventListener("click", () => choose([across, up]));
  return button;
}

function small(canvas, [across, up]) {
  const box = canvas.getBoundingClientRect();
  const dense = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [box.width * dense, box.height * dense];
  const c = canvas.getContext("2d");
  const [[x0, x1], [y0, y1]] = [extent(columns[across]), extent(columns[up])];
  const every = Math.ceil(points.row.length / 700);
  for (let i = 0; i < points.row.length; i += every) {
    if (!on(points.owner[i]) || columns[across][i] === null || columns[up][i] === null) continue;
    c.fillStyle = rgba(tint(points.owner[i]), 0.6);
    const x = ((columns[across][i] - x0) / (x1 - x0)) * canvas.width;
    const y = (1 - (columns[up][i] - y0) / (y1 - y0)) * canvas.height;
    c.fillRect(x - dense / 2, y - dense / 2, 1.5 * dense, 1.5 * dense);
  }
}

function choose(pair) {
  state.pair = pair;
  document.getElementById("pair-x").value = pair[0];
  document.getElementById("pair-y").value = pair[1];
  charts.pair.view = null;
  charts.pair.draw();
}

// -------------------------------------------------------------------------- calibration and fit

charts.coverage = new Chart("coverage", {
  labels: () => ["level of the interval", "share of values inside"],
  range: () => [[0, 1], [0, 1]],
  paint(chart) {
    chart.line([0, 1], [0, 1], theme.guide, 1.5, [5, 4]);
    const found = data.coverage[state.output];
    chart.line([0, ...data.levels, 1], [0, ...found, 1], theme.ink, 2);
    data.levels.forEach((level, i) => chart.dot(level, found[i], theme.ink, 3));
  },
});

charts.pit = new Chart("pit", {
  labels: () => ["predicted probability of a lower value", "share of values"],
  range: () => [[0, 1], [0, 1.1 * Math.max(...data.pit[state.output], 1.5 / data.pit[0].length)]],
  paint(chart) {
    const found = data.pit[state.output];
    const level = 1 / found.length;
    const edges = [level - data.chance[state.output], level + data.chance[state.output]];
    chart.c.fillStyle = theme.bars;
    found.forEach((share, i) => {
      const [left, right] = [chart.x(i * level), chart.x((i + 1) * level)];
      chart.c.fillRect(left + 0.5, chart.y(share), right - left - 1, chart.y(0) - chart.y(share));
    });
    chart.band([0, 1], [edges[0], edges[0]], [edges[1], edges[1]], rgba(theme.soft, 0.3));
    chart.line([0, 1], [level, level], theme.ink, 1.5, [5, 4]);
  },
});

charts.bound = new Chart("bound", {
  labels: () => ["step", "ELBO"],
  range() {
    const trace = data.bound.bound.filter((v) => v !== null).sort((a, b) => a - b);
    if (!trace.length) return [[0, 1], [0, 1]];
    // The ELBO of the first steps is far lower and would dominate the scale.
    const [low, high] = [trace[Math.floor(0.05 * trace.length)], trace[trace.length - 1]];
    const air = high - low || Math.abs(high) / 10 || 1;
    const last = Math.max(...data.bound.step, ...data.bound.ends.map((end) => end.step));
    return [[0, 1.02 * last], [low - 0.5 * air, high + 0.1 * air]];
  },
  paint(chart) {
    chart.line(data.bound.step, data.bound.bound, theme.processes[0], 2);
    for (const end of data.bound.ends) {
      if (end.bound !== null && !end.kept) chart.dot(end.step, end.bound, theme.processes[1], 4);
    }
  },
});
