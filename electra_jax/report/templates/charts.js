// Values under the pointer. A card of the class `chart` has its curves as JSON in `data-curves`,
// and each of its drawings has the place of its axes in `data-axes` (charts.py, drawing.py).
(function () {
  "use strict";
  const NEAR = 10; // how far outside the axes the pointer still reads, in units of the drawing

  const reading = document.createElement("div");
  const point = document.createElement("div");
  reading.className = "reading";
  point.className = "reading-point";
  reading.hidden = point.hidden = true;
  document.body.append(point, reading);

  function hide() {
    reading.hidden = point.hidden = true;
  }

  // The share of the way from one limit to the other.
  function share(value, limits, log) {
    const of = log ? Math.log : Number;
    return (of(value) - of(limits[0])) / (of(limits[1]) - of(limits[0]));
  }

  // The point nearest to a place of the drawing, among those inside the axes.
  function nearest(curves, axes, at) {
    let found = null;
    for (const line of curves.lines) {
      for (let i = 0; i < line.x.length; i++) {
        const right = share(line.x[i], axes.x, axes.xlog);
        const up = share(line.y[i], axes.y, axes.ylog);
        if (!(right >= -0.001 && right <= 1.001 && up >= -0.001 && up <= 1.001)) continue;
        const x = axes.left + right * (axes.right - axes.left);
        const y = axes.bottom + up * (axes.top - axes.bottom);
        const distance = Math.hypot(x - at.x, y - at.y);
        if (!found || distance < found.distance) {
          found = { distance, x, y, line, across: line.x[i], value: line.y[i] };
        }
      }
    }
    return found;
  }

  function written(value, unit) {
    if (unit) return (100 * value).toFixed(2) + (unit === "percent" ? "%" : "");
    if (value !== 0 && Math.abs(value) < 0.01) return value.toExponential(3);
    if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
    return value.toPrecision(4);
  }

  function say(curves, found) {
    const name = document.createElement("b");
    name.textContent = found.line.name;
    name.style.color = "var(--" + found.line.colour + ")";
    const value = curves.read === "x" ? found.across : found.value;
    reading.replaceChildren(name, " " + written(value, curves.unit));
    if (curves.along) {
      const where = document.createElement("div");
      where.textContent = curves.along + " " + Math.round(found.across).toLocaleString("en");
      reading.append(where);
    }
  }

  function read(event) {
    const drawing = event.target.closest ? event.target.closest(".chart svg") : null;
    if (!drawing) return hide();
    const axes = JSON.parse(drawing.dataset.axes);
    const card = drawing.closest(".chart");
    card.curves = card.curves || JSON.parse(card.dataset.curves);

    const box = drawing.getBoundingClientRect();
    const unit = box.width / drawing.viewBox.baseVal.width; // pixels
    const at = { x: (event.clientX - box.left) / unit, y: (event.clientY - box.top) / unit };
    const inside = at.x > axes.left - NEAR && at.x < axes.right + NEAR &&
      at.y > axes.top - NEAR && at.y < axes.bottom + NEAR;
    const found = inside ? nearest(card.curves, axes, at) : null;
    if (!found) return hide();

    say(card.curves, found);
    reading.hidden = point.hidden = false;
    const x = box.left + found.x * unit, y = box.top + found.y * unit;
    point.style.background = "var(--" + found.line.colour + ")";
    point.style.left = x + "px";
    point.style.top = y + "px";

    // Beside the point, but never outside the window.
    const wide = document.documentElement.clientWidth - reading.offsetWidth - 4;
    reading.style.left = Math.max(4, Math.min(x + 12, wide)) + "px";
    reading.style.top = Math.max(4, y - reading.offsetHeight - 10) + "px";
  }

  document.addEventListener("pointermove", read);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, { passive: true });
})();
