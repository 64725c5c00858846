"use strict";

/** Colours of the style sheet, by name. */
const theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "soft", "grid", "guide", "focus", "bars"];
  for (const name of names) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.processes = [0, 1, 2, 3, 4, 5, 6, 7].map((k) => style.getPropertyValue(`--process-${k}`).trim());
}
readTheme();

/** Positions of ticks and how to write them, for an axis that shows about `count`. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || rough;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const size = Math.max(Math.abs(low), Math.abs(high));
  const wild = (size >= 1e7 && high - low > size / 1e3) || decimals > 5;
  return found.map((v) => [v, (wild ? v.toPrecision(3) : v.toFixed(decimals)).replace("-", "−")]);
}

/** A range with a margin; never empty. */
function padded(low, high, air) {
  if (!(high > low)) {
    const half = Math.abs(low) / 10 || 1;
    return [low - half, low + half];
  }
  return [low - air * (high - low), high + air * (high - low)];
}

function rgba(hex, alpha) {
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

/**
 * Axes on a canvas. `spec` has labels() → [x, y], range() → [[x0, x1], [y0, y1]] and paint(chart);
 * optional: points() → [{i, x, y}] that can be pointed at, tell(i) → element that describes one,
 * twin: () → a chart whose horizontal view this one follows.
 */
class Chart {
  constructor(id, spec) {
    this.canvas = document.getElementById(id);
    this.button = this.canvas.parentNode.querySelector(".reset");
    this.spec = spec;
    this.view = null;
    this.selected = -1;
    this.seen = [];
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  x(value) { return this.left + ((value - this.xs[0]) / (this.xs[1] - this.xs[0])) * this.wide; }
  y(value) { return this.top + (1 - (value - this.ys[0]) / (this.ys[1] - this.ys[0])) * this.high; }
  valueX(px) { return this.xs[0] + ((px - this.left) / this.wide) * (this.xs[1] - this.xs[0]); }
  valueY(px) { return this.ys[0] + (1 - (px - this.top) / this.high) * (this.ys[1] - this.ys[0]); }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(box.width * dense);
    this.canvas.height = Math.round(box.height * dense);
    const c = (this.c = this.canvas.getContext("2d"));
    c.setTransform(dense, 0, 0, dense, 0, 0);
    c.clearRect(0, 0, box.width, box.height);
    c.font = "12px system-ui, sans-serif";
    [this.xs, this.ys] = this.view || this.spec.range();
    const twin = this.spec.twin && this.spec.twin();
    if (twin && twin.xs) this.xs = twin.xs;
    this.axes(box, twin);
    c.save();
    c.beginPath();
    c.rect(this.left, this.top, this.wide, this.high);
    c.clip();
    this.spec.paint(this);
    this.mark();
    c.restore();
    if (this.button) this.button.hidden = !this.view;
    if (this.spec.drawn) this.spec.drawn();
  }

  axes(box, twin) {
    const c = this.c;
    [this.top, this.high] = [24, box.height - 24 - 40];
    const up = ticks(this.ys[0], this.ys[1], this.high / 45);
    const widest = Math.max(...up.map(([, text]) => c.measureText(text).width), 22);
    this.left = twin && twin.left ? twin.left : Math.min(Math.ceil(widest) + 12, box.width / 3);
    this.wide = box.width - this.left - 10;
    let across = ticks(this.xs[0], this.xs[1], this.wide / 60);
    const longest = Math.max(...across.map(([, text]) => c.measureText(text).width), 0);
    if (longest > 40) across = ticks(this.xs[0], this.xs[1], this.wide / (longest + 24));
    [c.strokeStyle, c.fillStyle, c.lineWidth] = [theme.grid, theme.soft, 1];
    c.beginPath();
    for (const [v] of across) { c.moveTo(this.x(v), this.top); c.lineTo(this.x(v), this.top + this.high); }
    for (const [v] of up) { c.moveTo(this.left, this.y(v)); c.lineTo(this.left + this.wide, this.y(v)); }
    c.stroke();
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const [v, text] of up) c.fillText(text, this.left - 6, this.y(v));
    c.textAlign = "center";
    for (const [v, text] of across) {
      const half = c.measureText(text).width / 2;
      const at = Math.max(half, Math.min(this.x(v), box.width - half));
      c.fillText(text, at, this.top + this.high + 12);
    }
    const [xlabel, ylabel] = this.spec.labels();
    c.fillStyle = theme.ink;
    c.fillText(this.fitted(xlabel, this.wide), this.left + this.wide / 2, box.height - 10);
    c.textAlign = "left";
    c.fillText(this.fitted(ylabel, box.width - 100), 2, 10);
  }

  /** Text cut to a width. */
  fitted(text, width) {
    if (this.c.measureText(text).width <= width) return text;
    let end = text.length;
    while (end > 1 && this.c.measureText(text.slice(0, end) + "…").width > width) end--;
    return text.slice(0, end) + "…";
  }

  line(xs, ys, style, width = 2, dash = []) {
    const c = this.c;
    c.beginPath();
    xs.forEach((x, i) => (ys[i] === null ? null : c.lineTo(this.x(x), this.y(ys[i]))));
    [c.strokeStyle, c.lineWidth, c.lineJoin] = [style, width, "round"];
    c.setLineDash(dash);
    c.stroke();
    c.setLineDash([]);
  }

  band(xs, low, high, style) {
    const c = this.c;
    c.beginPath();
    xs.forEach((x, i) => c.lineTo(this.x(x), this.y(low[i])));
    for (let i = xs.length - 1; i >= 0; i--) c.lineTo(this.x(xs[i]), this.y(high[i]));
    c.closePath();
    c.fillStyle = style;
    c.fill();
  }

  /** A colour whose opacity varies along the axis, as one gradient without seams. */
  fade(xs, weights, hex, strength) {
    const [first, last] = [this.x(xs[0]), this.x(xs[xs.length - 1])];
    const gradient = this.c.createLinearGradient(first, 0, last, 0);
    xs.forEach((_, i) => {
      const alpha = strength * Math.min(Math.max(weights[i], 0), 1) ** 0.7;
      gradient.addColorStop(i / (xs.length - 1), rgba(hex, alpha.toFixed(3)));
    });
    return gradient;
  }

  dot(x, y, style, size = 2.5) {
    const c = this.c;
    c.fillStyle = style;
    c.beginPath();
    c.arc(this.x(x), this.y(y), size, 0, 7);
    c.fill();
  }

  mark() {
    const c = this.c;
    const at = this.seen.find((p) => p.i === this.selected);
    if (at) {
      [c.strokeStyle, c.lineWidth] = [theme.ink, 2];
      c.beginPath();
      c.arc(this.x(at.x), this.y(at.y), 6, 0, 7);
      c.stroke();
    }
    if (this.drag && this.drag.to) {
      const { from, to } = this.drag;
      c.fillStyle = rgba(theme.focus, 0.15);
      c.fillRect(from[0], from[1], to[0] - from[0], to[1] - from[1]);
    }
  }

  // ------------------------------------------------------------------------------ pointer, keys

  listen() {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      // Touch scrolls the page; only a mouse drags a zoom frame.
      if (event.pointerType !== "mouse" || event.button) return;
      this.drag = { from: at(event) };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) { if (event.pointerType === "mouse") this.point(at(event)); return; }
      this.drag.to = at(event);
      this.draw();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (drag && drag.to) this.frame(drag.from, at(event)); else this.point(at(event));
    });
    this.canvas.addEventListener("pointerleave", () => { if (!this.drag) this.select(-1); });
    this.canvas.addEventListener("blur", () => this.select(-1));
    this.canvas.addEventListener("dblclick", () => this.zoom(0));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    if (this.button) this.button.addEventListener("click", () => { this.zoom(0); this.canvas.focus(); });
  }

  /** Zoom to a frame drawn with the mouse; a tiny one counts as a click. */
  frame(from, to) {
    if (Math.abs(from[0] - to[0]) < 8 || Math.abs(from[1] - to[1]) < 8) { this.draw(); return; }
    const sorted = (a, b) => [Math.min(a, b), Math.max(a, b)];
    this.view = [
      sorted(this.valueX(from[0]), this.valueX(to[0])),
      sorted(this.valueY(from[1]), this.valueY(to[1])),
    ];
    this.draw();
  }

  /** Zoom about the selected point or the middle; 0 shows everything. */
  zoom(factor) {
    if (factor) {
      const point = this.seen.find((p) => p.i === this.selected);
      const around = ([a, b], v) => {
        const [middle, half] = [v === undefined ? (a + b) / 2 : v, ((b - a) / 2) * factor];
        return [middle - half, middle + half];
      };
      this.view = [around(this.xs, point && point.x), around(this.ys, point && point.y)];
    } else this.view = null;
    this.draw();
  }

  key(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 10, ArrowDown: -10 };
    const zooms = { "+": 0.5, "=": 0.5, "-": 2, 0: 0 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.select(-1);
    else if (event.key in zooms) this.zoom(zooms[event.key]);
    else if (event.key in moves && this.seen.length) this.step(moves[event.key]);
    else return;
    event.preventDefault();
  }

  step(by) {
    const order = this.visible().sort((a, b) => a.x - b.x || a.i - b.i);
    const at = order.findIndex((p) => p.i === this.selected);
    const next = at < 0 ? 0 : Math.max(0, Math.min(order.length - 1, at + by));
    if (order.length) this.select(order[next].i);
  }

  visible() {
    const [[x0, x1], [y0, y1]] = [this.xs, this.ys];
    return this.seen.filter((p) => p.x >= x0 && p.x <= x1 && p.y >= y0 && p.y <= y1);
  }

  point([px, py]) {
    let [best, least] = [-1, 14 ** 2];
    for (const p of this.visible()) {
      const distance = (this.x(p.x) - px) ** 2 + (this.y(p.y) - py) ** 2;
      if (distance < least) [best, least] = [p.i, distance];
    }
    this.select(best);
  }

  select(i) {
    if (i === this.selected) return;
    this.selected = i;
    this.draw();
    const tip = document.getElementById("tip");
    tip.hidden = !this.seen.some((p) => p.i === i);
    if (tip.hidden) return;
    tip.replaceChildren(...this.spec.tell(i));
    this.place();
  }

  /** Put the description beside its point, inside the window. */
  place() {
    const tip = document.getElementById("tip");
    const at = this.seen.find((p) => p.i === this.selected);
    if (tip.hidden || !at) return;
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [box.left + this.x(at.x), box.top + this.y(at.y)];
    const inside = (v, size, room) => Math.max(4, Math.min(v, room - size - 4));
    const beside = px + 14 + tip.offsetWidth > document.documentElement.clientWidth - 4;
    const x = beside ? px - 14 - tip.offsetWidth : px + 14;
    const above = py - tip.offsetHeight - 14;
    tip.style.left = `${inside(x, tip.offsetWidth, document.documentElement.clientWidth)}px`;
    tip.style.top = `${above > 4 ? above : inside(py + 14, tip.offsetHeight, innerHeight)}px`;
  }
}
