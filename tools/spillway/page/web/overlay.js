// What stands over the bands: the axes, what the allocator held, the marks, and the chosen moment.

function drawOver(chart, view) {
  // It is emptied by its width: where a page is printed, clearRect would clear the bands behind it too.
  chart.over.width = Math.round(chart.box.width * chart.ratio);
  const pen = chart.over.getContext('2d');
  pen.scale(chart.ratio, chart.ratio);
  pen.translate(kGutter.left, kGutter.top);
  pen.font = '12px system-ui, sans-serif';
  const at = {
    x: (x) => (x - view.x0) / (view.x1 - view.x0) * chart.width,
    y: (bytes) => chart.height - (bytes - view.y0) / (view.y1 - view.y0) * chart.height,
  };
  drawByteAxis(pen, chart, view, at);
  drawLongAxis(pen, chart, view, at);
  pen.save();
  pen.beginPath();
  pen.rect(0, -kGutter.top, chart.width, chart.height + kGutter.top);
  pen.clip();
  drawReserved(pen, chart, view, at);
  drawSteps(pen, chart, at);
  drawMarks(pen, chart, at);
  pen.restore();
}

function drawByteAxis(pen, chart, view, at) {
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  for (const tick of byteTicks(view.y0, view.y1, Math.max(2, chart.height / 60))) {
    const y = Math.round(at.y(tick)) + 0.5;
    pen.strokeStyle = theme.line;
    pen.globalAlpha = 0.5;
    stroke(pen, [[0, y], [chart.width, y]]);
    pen.globalAlpha = 1;
    pen.fillStyle = theme.muted;
    pen.fillText(tickText(tick), -8, y);
  }
}

function drawLongAxis(pen, chart, view, at) {
  pen.textAlign = 'center';
  pen.textBaseline = 'top';
  pen.strokeStyle = theme.line;
  stroke(pen, [[0, chart.height + 0.5], [chart.width, chart.height + 0.5]]);
  for (const tick of d3.ticks(view.x0, view.x1, Math.max(2, Math.floor(chart.width / 130)))) {
    const x = Math.round(at.x(tick)) + 0.5, text = chart.axis.text(tick, view.x1 - view.x0);
    stroke(pen, [[x, chart.height], [x, chart.height + 5]]);
    const half = pen.measureText(text).width / 2;
    pen.fillStyle = theme.muted;
    pen.fillText(text, Math.max(half - 20, Math.min(chart.width - half, x)), chart.height + 8);
  }
}

function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([x, y], i) => i ? pen.lineTo(x, y) : pen.moveTo(x, y));
  pen.stroke();
}

// A stair; of each pixel the most.
function drawReserved(pen, chart, view, at) {
  chart.mostReserved = chart.mostReserved || new RangeMost(memory.reserved);
  pen.strokeStyle = theme.ink;
  pen.lineWidth = 1.25;
  pen.beginPath();
  for (let c = 0; c <= chart.width; ++c) {
    const x = view.x0 + c / chart.width * (view.x1 - view.x0), next = x + (view.x1 - view.x0) / chart.width;
    const first = chart.axis.momentAt(x), last = Math.max(first + 1, chart.axis.momentAt(next));
    const y = at.y(chart.mostReserved.of(first, last));
    c ? pen.lineTo(c, y) : pen.moveTo(c, y);
  }
  pen.stroke();
  pen.lineWidth = 1;
  const capacity = capacityBytes();
  if (!capacity) return;
  pen.strokeStyle = theme.bad;
  pen.setLineDash([6, 4]);
  stroke(pen, [[0, at.y(capacity)], [chart.width, at.y(capacity)]]);
  pen.setLineDash([]);
  label(pen, (incident ? 'limit ' : 'card ') + sizeText(capacity), 6, at.y(capacity) + 4, 'left', 'top', theme.bad);
}

// Text over the bands has the ground behind it.
function label(pen, text, x, y, align, baseline, colour) {
  const width = pen.measureText(text).width + 8;
  const left = align === 'left' ? x - 4 : align === 'right' ? x - width + 4 : x - width / 2;
  pen.fillStyle = theme.chart;
  pen.fillRect(left, baseline === 'top' ? y - 2 : y - 15, width, 17);
  pen.fillStyle = colour;
  pen.textAlign = 'left';
  pen.textBaseline = 'top';
  pen.fillText(text, left + 4, baseline === 'top' ? y : y - 13);
}

function drawSteps(pen, chart, at) {
  pen.strokeStyle = theme.muted;
  const xs = memory.steps.map((moment) => at.x(chart.axis.at(moment))).filter((x) => x >= 0 && x <= chart.width);
  if (xs.length > chart.width / 6) return;
  for (const x of xs) stroke(pen, [[Math.round(x) + 0.5, chart.height - 7], [Math.round(x) + 0.5, chart.height]]);
}

function drawMarks(pen, chart, at) {
  const marks = memory.failures.slice(1, 200).map((failure) => ({moment: failure.moment, text: '', colour: theme.bad}));
  if (memory.failure !== memory.peak) marks.push({moment: memory.peak, text: 'peak', colour: theme.ink});
  marks.push({moment: state.moment, text: '', colour: theme.mark, wide: true});
  if (memory.failure !== null) marks.push({moment: memory.failure, text: 'failure', colour: theme.bad});
  let taken = [];
  for (const mark of marks.reverse()) {
    const x = Math.round(at.x(chart.axis.at(mark.moment))) + 0.5;
    if (x < -1 || x > chart.width + 1) continue;
    pen.strokeStyle = mark.colour;
    pen.lineWidth = mark.wide ? 2 : 1;
    stroke(pen, [[Math.min(x, chart.width - 1), mark.text ? -6 : 0], [Math.min(x, chart.width - 1), chart.height]]);
    pen.lineWidth = 1;
    if (!mark.text) continue;
    const half = pen.measureText(mark.text).width / 2 + 6, middle = Math.max(half, Math.min(chart.width - half, x));
    if (taken.some((other) => Math.abs(other - middle) < 2 * half)) continue;
    taken.push(middle);
    pen.fillStyle = mark.colour;
    pen.textAlign = 'center';
    pen.textBaseline = 'bottom';
    pen.fillText(mark.text, middle, -7);
  }
  drawRequest(pen, chart, at);
}

// What was asked for, on top of what was in use.
function drawRequest(pen, chart, at) {
  if (memory.failure === null) return;
  const x = at.x(chart.axis.at(memory.failure)), low = memory.inUse[memory.failure];
  const top = at.y(low + memory.failures[0].bytes), bottom = at.y(low);
  pen.fillStyle = theme.bad;
  pen.globalAlpha = 0.35;
  pen.fillRect(x - 3, top, 7, Math.max(2, bottom - top));
  pen.globalAlpha = 1;
  pen.strokeStyle = theme.bad;
  pen.strokeRect(x - 3, top, 7, Math.max(2, bottom - top));
}
