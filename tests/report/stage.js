// A stand-in for a browser: runs the scripts of a report, records what is drawn on each canvas.
// node stage.js PAGE light|dark [WIDTH] [EXPRESSION]
"use strict";
const fs = require("fs");
const vm = require("vm");

const [page, mode, width = "900", expression = "null"] = process.argv.slice(2);
const html = fs.readFileSync(page, "utf-8");
const nodes = new Map();
const drawn = {};
const listeners = {};

/** Custom properties of the style sheet: those of the first rule, then those of dark mode. */
function variables() {
  const style = html.match(/<style>([^]*?)<\/style>/)[1];
  const [light, dark] = [/:root \{([^]*?)\}/, /:root:not\(\.light\) \{([^]*?)\}/].map((r) => style.match(r)[1]);
  const read = (text) => Object.fromEntries([...text.matchAll(/(--[\w-]+):\s*([^;]+);/g)].map((m) => [m[1], m[2]]));
  return mode === "dark" && !root.classes.has("light") ? { ...read(light), ...read(dark) } : read(light);
}

/** A canvas context that writes down the calls that paint, with the styles they have. */
function context(name) {
  const ops = (drawn[name] = drawn[name] || []);
  const state = { dash: [] };
  let path = [];
  const paint = (kind, extra) => ops.push({
    kind, path, fill: String(state.fillStyle), stroke: String(state.strokeStyle), width: state.lineWidth,
    dash: state.dash, align: state.textAlign, base: state.textBaseline, ...extra,
  });
  const calls = {
    beginPath: () => { path = []; },
    moveTo: (x, y) => path.push(["M", x, y]),
    lineTo: (x, y) => path.push([path.length ? "L" : "M", x, y]),
    closePath: () => path.push(["Z"]),
    rect: () => {},
    arc: (x, y, r) => path.push(["O", x, y, r]),
    fill: () => paint("fill"),
    stroke: () => paint("stroke"),
    fillRect: (x, y, w, h) => paint("rect", { box: [x, y, w, h] }),
    fillText: (text, x, y) => paint("text", { text, at: [x, y] }),
    clearRect: () => { ops.length = 0; },
    measureText: (text) => ({ width: 6.2 * String(text).length }),
    setLineDash: (dash) => { state.dash = dash; },
    createLinearGradient: (x0, _, x1) => {
      const stops = [];
      return { addColorStop: (at, colour) => stops.push([at, colour]), toString: () => JSON.stringify({ x0, x1, stops }) };
    },
    setTransform() {}, save() {}, restore() {}, clip() {},
  };
  return new Proxy(state, { get: (s, key) => calls[key] || s[key], set: (s, key, v) => { s[key] = v; return true; } });
}

function element(id) {
  const classes = new Set();
  const handlers = {};
  const node = {
    id, classes, handlers, children: [], dataset: {}, style: {}, checked: true, hidden: true, value: 0,
    parentNode: { querySelector: () => null },
    classList: { toggle: (name, on) => (on ? classes.add(name) : classes.delete(name)) },
    addEventListener: (event, action) => { handlers[event] = action; },
    append(...more) { this.children.push(...more); },
    replaceChildren(...more) { this.children = more; },
    remove() {}, click() {}, focus() {}, setAttribute() {}, setPointerCapture() {},
    querySelectorAll: () => [],
    getBoundingClientRect: () => ({ left: 0, top: 0, width: Number(width), height: 400 }),
    getContext: () => context(id),
  };
  return node;
}

const root = element("root");
function byId(id) {
  if (!new RegExp(`id="${id}"`).test(html)) return null;
  if (!nodes.has(id)) nodes.set(id, element(id));
  return nodes.get(id);
}
byId("data").textContent = html.match(/id="data">([^]*?)<\/script>/)[1];
const boxes = [...html.matchAll(/data-process="(\d+)"/g)].map((m) => Object.assign(element("box"), { dataset: { process: m[1] } }));
const saved = [];
const sizes = [];
const world = {
  document: {
    documentElement: root, body: element("body"), getElementById: byId, createElement: () => element("new"),
    querySelectorAll: (what) => (what === "[data-process]" ? boxes : []),
  },
  getComputedStyle: () => ({ getPropertyValue: (name) => ` ${variables()[name] || ""}` }),
  ResizeObserver: class { constructor(action) { this.action = action; } observe() { sizes.push(this.action); } },
  matchMedia: () => ({ addEventListener() {} }),
  addEventListener: (event, action) => { listeners[event] = action; },
  Blob: class { constructor(parts) { saved.push(parts.join("")); } },
  URL: { createObjectURL: () => "blob:", revokeObjectURL() {} },
  setTimeout() {}, devicePixelRatio: 1, innerHeight: 800, console,
};
world.window = world;
world.stage = { nodes, listeners, saved, drawn };
const script = html.match(/<script>([^]*?)<\/script>\s*<\/body>/)[1];
const scope = vm.createContext(world);
vm.runInContext(script, scope, { filename: "report" });
// As in a browser, sizes are observed after the scripts have run.
sizes.forEach((action) => action());
const asked = vm.runInContext(`(${expression})`, scope);
process.stdout.write(JSON.stringify({ drawn, saved, asked }));
