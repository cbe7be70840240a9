// Memory over time: the bands, the axes over them, zoom, and the choice of a moment and a block.

// As the style sheet has them.
const kGutter = {
  left: 74,
  right: 10,
  top: 26,
  bottom: 26
};
const kLeastSpan = 8;  // moments, or microseconds, across the whole chart

class Timeline {
  constructor(host) {
    this.axis = new Axis();
    this.most = new RangeMost(memory.inUse);
    this.yMost = this.highest() * 1.04;
    this.tall = 1;  // how far the bytes are stretched
    this.y0 = 0;
    this.plot = el('canvas', {
      class: 'plot',
      tabindex: 0,
      role: 'slider',
      'aria-label': 'Moment on the chart of memory over time',
      'aria-describedby': 'time-keys',
      'aria-valuemin': 0,
      'aria-valuemax': memory.moments - 1
    });
    this.over = el('canvas', {class: 'over', 'aria-hidden': 'true'});
    this.host = host;
    host.append(this.plot, this.over);
    this.draw = drawSoon(() => this.drawNow());
    this.startZoom();
    listenTo(this);
    new ResizeObserver(() => this.resize()).observe(host);
    this.resize();
    this.changed({moment: state.moment});
    drawnForPaper.push(() => {
      this.resize();
      this.drawNow();
    });
    whenChanged((what) => this.changed(what));
  }

  highest() {
    let most = capacityBytes() || 1;
    for (const reserved of memory.reserved)
      if (reserved > most) most = reserved;
    if (memory.failure !== null) most = Math.max(most, memory.inUse[memory.failure] + memory.failures[0].bytes);
    return Math.max(most, this.most.of(0, memory.moments));
  }

  resize() {
    const box = this.host.getBoundingClientRect();
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (box.width < 1 ||
        (this.box && this.box.width === box.width && this.box.height === box.height && this.ratio === ratio))
      return;
    const view = this.box && this.view();
    this.box = box;
    this.ratio = ratio;
    this.width = Math.max(40, box.width - kGutter.left - kGutter.right);
    this.height = Math.max(40, box.height - kGutter.top - kGutter.bottom);
    this.over.height = Math.round(box.height * ratio);
    this.plot.width = Math.round(this.width * ratio);
    this.plot.height = Math.round(this.height * ratio);
    this.painter = new BandPainter(this.plot.width, this.plot.height);
    this.limitZoom();
    if (view) this.show(view.x0, view.x1);
    this.draw();
  }

  startZoom() {
    this.transform = d3.zoomIdentity;
    this.zoom = d3.zoom()
                    .filter(() => !d3.event.shiftKey && !d3.event.button)
                    .on('zoom', () => this.zoomed(d3.event.transform));
    d3.select(this.plot).call(this.zoom).on('dblclick.zoom', null);
    this.plot.style.touchAction = 'pan-y';  // d3 forbids it; a finger that goes up and down scrolls the page
  }

  limitZoom() {
    this.zoom.extent([[0, 0], [this.width, this.height]])
        .translateExtent([[0, -Infinity], [this.width, Infinity]])
        .scaleExtent([1, Math.max(1, this.axis.whole / kLeastSpan)]);
  }

  zoomed(to) {
    if (to.k === this.transform.k && this.tall > 1) this.moveUp(to.y - this.transform.y);
    this.transform = to;
    this.draw();
  }

  moveUp(pixels) {
    const span = this.yMost / this.tall;
    this.y0 = Math.max(0, Math.min(this.yMost - span, this.y0 + pixels * span / this.height));
  }

  view() {
    const span = this.axis.whole / this.transform.k;
    const x0 = Math.max(0, -this.transform.x / this.transform.k * this.axis.whole / this.width);
    return {x0, x1: x0 + span, y0: this.y0, y1: this.y0 + this.yMost / this.tall};
  }

  show(x0, x1) {
    const span = Math.max(kLeastSpan, x1 - x0);
    const scale = Math.max(1, this.axis.whole / span);
    const to = d3.zoomIdentity.translate(-x0 / this.axis.whole * this.width * scale, 0).scale(scale);
    d3.select(this.plot).call(this.zoom.transform, to);
  }

  showAround(moment, part) {
    const span = this.axis.whole * part;
    this.show(this.axis.at(moment) - span / 2, this.axis.at(moment) + span / 2);
  }

  scaleBy(factor) {
    const at = this.xOf(state.moment);
    d3.select(this.plot).call(this.zoom.scaleBy, factor, [Math.max(0, Math.min(this.width, at)), 0]);
  }

  // `y`: pixels from the top, which stay where they are.
  stretch(factor, y) {
    const at = this.y0 + (1 - y / this.height) * this.yMost / this.tall;
    this.tall = Math.max(1, Math.min(65536, this.tall * factor));
    const span = this.yMost / this.tall;
    this.y0 = Math.max(0, Math.min(this.yMost - span, at - (1 - y / this.height) * span));
    this.draw();
  }

  // From the least to the most that was in use in the span that is shown.
  fit() {
    const view = this.view();
    const first = this.axis.momentAt(view.x0), last = this.axis.momentAt(view.x1);
    let low = Infinity;
    for (let i = first; i <= last; ++i)
      if (memory.inUse[i] < low) low = memory.inUse[i];
    const high = this.most.of(first, last + 1);
    this.tall = Math.max(1, Math.min(65536, this.yMost / Math.max(1, (high - low) * 1.1)));
    const span = this.yMost / this.tall;
    this.y0 = Math.max(0, Math.min(this.yMost - span, low - (high - low) * 0.05));
    this.draw();
  }

  whole() {
    this.tall = 1;
    this.y0 = 0;
    this.show(0, this.axis.whole);
    this.draw();
  }

  setByTime(byTime) {
    const view = this.view();
    const first = this.axis.momentAt(view.x0), last = this.axis.momentAt(view.x1);
    const isWhole = this.transform.k <= 1;
    this.axis.byTime = byTime;
    this.limitZoom();
    if (isWhole)
      this.show(0, this.axis.whole);
    else
      this.show(this.axis.at(first), this.axis.at(last));
    this.draw();
  }

  xOf(moment) {
    const view = this.view();
    return (this.axis.at(moment) - view.x0) / (view.x1 - view.x0) * this.width;
  }

  changed(what) {
    if ('moment' in what) {
      const x = this.xOf(state.moment), view = this.view();
      if (x < 0 || x > this.width) {
        const middle = this.axis.at(state.moment), span = view.x1 - view.x0;
        this.show(
            Math.max(0, Math.min(this.axis.whole - span, middle - span / 2)),
            Math.min(this.axis.whole, middle + span / 2));
      }
      this.plot.setAttribute('aria-valuenow', state.moment);
      this.plot.setAttribute(
          'aria-valuetext', beforeText(state.moment) + ', ' + sizeText(memory.inUse[state.moment]) + ' in use');
    }
    this.draw();
  }

  mostByColumn(view) {
    const most = new Float64Array(this.plot.width);
    const perColumn = (view.x1 - view.x0) / most.length;
    for (let c = 0; c < most.length; ++c) {
      const x = view.x0 + c * perColumn;
      const middle = this.axis.momentAt(x + perColumn / 2);
      const first = this.axis.momentAt(x), last = this.axis.momentAt(x + perColumn);
      most[c] = last - first < 2 ? memory.inUse[middle] : this.most.of(first, last);
    }
    return most;
  }

  drawNow() {
    const view = this.view();
    this.plot.getContext('2d').putImageData(
        this.painter.paint(view, this.axis.extents(), this.mostByColumn(view)), 0, 0);
    drawOver(this, view);
    if (this.drawn) this.drawn(view);
  }

  // What is under a pointer: the moment and the block there.
  under(event) {
    const box = this.plot.getBoundingClientRect(), view = this.view();
    const moment = this.axis.momentAt(view.x0 + (event.clientX - box.left) / box.width * (view.x1 - view.x0));
    const bytes = view.y1 - (event.clientY - box.top) / box.height * (view.y1 - view.y0);
    return {moment, ...blockAt(moment, bytes, leastShown(view, this.plot.height))};
  }
}
