// The map: every segment of the allocator at the chosen moment, each block and hole at its address.

class SegmentMap {
  constructor(host) {
    this.canvas = el('canvas', {tabindex: 0, role: 'img', 'aria-describedby': 'map-keys'});
    this.host = host;
    host.append(this.canvas);
    this.draw = drawSoon(() => this.drawNow());
    this.hole = null;
    new ResizeObserver(() => host.clientWidth !== this.drawnWidth && this.draw()).observe(host);
    this.canvas.addEventListener('mousemove', (event) => this.tell(event));
    this.canvas.addEventListener('mouseleave', hideTip);
    this.canvas.addEventListener('click', (event) => this.choose(this.under(event)));
    this.canvas.addEventListener('keydown', (event) => this.pressed(event));
    whenChanged((what) => {
      if ('moment' in what || what.block >= 0) this.hole = null;
      this.draw();
    });
    drawnForPaper.push(() => this.drawNow());
    this.draw();
  }

  drawNow() {
    const width = this.drawnWidth = this.host.clientWidth;
    if (width < 40) return;
    const layout = this.layout = layOut(state.moment, width);
    const request = this.requestRows(layout);
    const height = layout.height + (request ? request.height : 0), ratio = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = height + 'px';
    const pen = this.canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.font = '12.5px system-ui, sans-serif';
    pen.textBaseline = 'top';
    for (const group of layout.groups) this.drawGroup(pen, group);
    if (request) this.drawRequest(pen, request);
    this.drawChosen(pen);
    this.canvas.setAttribute('aria-label', this.summary());
  }

  drawGroup(pen, group) {
    const name = this.layout.groups.length > 1 || memory.segments.owners.length > 1 ? poolName(group.owner) + ': ' : '';
    pen.fillStyle = theme.muted;
    pen.fillText(
        name + sizeText(group.bytes) + ' in ' + plural(group.segments.length, 'segment', 'segments') +
            ', largest hole ' + sizeText(group.largest),
        0, group.y - 18);
    for (const segment of group.segments)
      for (const piece of segment.pieces) this.drawPiece(pen, group, segment, piece);
  }

  drawPiece(pen, group, segment, piece) {
    const {block} = piece;
    const colour = block < 0 ? theme.hole : theme.hexes[ranks.colour[memory.place[block]]];
    pen.fillStyle = colour;
    pen.globalAlpha = block >= 0 && state.place >= 0 && memory.place[block] !== state.place ? 0.15 : 1;
    const pending = block >= 0 && memory.blocks.pending[block] <= this.layout.moment;
    for (const [x, y, length] of pieceBoxes(this.layout, group, segment, piece)) {
      pen.fillRect(x, y, length > 2.5 ? length - 0.75 : length, kRowHeight);
      if (pending) hatch(pen, x, y, length);
    }
    pen.globalAlpha = 1;
  }

  // The request at the map's scale, below it: whether it is longer than each hole can be seen.
  requestRows(layout) {
    const bytes = requestedBytes();
    if (!bytes) return null;
    const group = {y: layout.height + kLabelHeight, length: bytes / layout.perPixel};
    const rows = Math.min(40, Math.ceil(group.length / layout.width));
    return {group, rows, bytes, height: kLabelHeight + rows * (kRowHeight + kRowGap) + 6};
  }

  drawRequest(pen, {group, rows, bytes}) {
    pen.fillStyle = theme.bad;
    pen.fillText('The request that failed, at the same scale: ' + sizeText(bytes), 0, group.y - 18);
    for (const [x, y, length] of boxesOf(this.layout, group, 0, Math.min(group.length, rows * this.layout.width))) {
      pen.globalAlpha = 0.3;
      pen.fillRect(x, y, Math.max(2, length), kRowHeight);
      pen.globalAlpha = 1;
      pen.strokeStyle = theme.bad;
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(2, length) - 1, kRowHeight - 1);
    }
  }

  drawChosen(pen) {
    pen.strokeStyle = theme.mark;
    pen.lineWidth = 2.5;
    for (const {group, segment, piece} of this.pieces())
      if (piece.block >= 0 ? piece.block === state.block : this.hole && piece.start === this.hole.start)
        for (const [x, y, length] of pieceBoxes(this.layout, group, segment, piece))
          pen.strokeRect(x - 0.5, y - 0.5, Math.max(3, length), kRowHeight + 1);
  }

  * pieces() {
    for (const group of this.layout.groups)
      for (const segment of group.segments)
        for (const piece of segment.pieces) yield {group, segment, piece};
  }

  summary() {
    const bytes = this.layout.groups.reduce((sum, group) => sum + group.bytes, 0);
    const holes = Array.from(this.pieces()).filter(({piece}) => piece.block < 0).length;
    return 'Map of ' + sizeText(bytes) + ' of segments ' + beforeText(state.moment) + ', with ' +
        plural(holes, 'hole', 'holes');
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.layout && pieceAt(this.layout, event.clientX - box.left, event.clientY - box.top);
  }

  tell(event) {
    const under = this.under(event);
    if (!under) return hideTip();
    showTip(
        event.clientX, event.clientY,
        ...(under.piece.block >= 0 ? blockTip(under.piece.block, state.moment) : this.holeLines(under)));
  }

  holeLines({group, piece}) {
    const size = piece.end - piece.start, asked = requestedBytes();
    return [
      el('b', null, 'Hole of ' + sizeText(size)), el('span', null, poolName(group.owner)),
      asked ?
          el('span', null,
             size >= asked ? 'It would hold the request.' : sizeText(asked - size) + ' too small for the request.') :
          null
    ].filter(Boolean);
  }

  choose(under) {
    this.hole = under && under.piece.block < 0 ? under.piece : null;
    change({block: under && under.piece.block >= 0 ? under.piece.block : -1});
    if (this.told) this.told(this.hole ? under : null);
    this.draw();
  }

  pressed(event) {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (event.key === 'Escape') this.choose(null);
    if (!step || !this.layout) return;
    event.preventDefault();
    const all = Array.from(this.pieces());
    const now = all.findIndex(
        ({piece}) => this.hole ? piece.start === this.hole.start : piece.block >= 0 && piece.block === state.block);
    this.choose(all[now < 0 ? 0 : Math.max(0, Math.min(all.length - 1, now + step))]);
  }
}

function hatch(pen, x, y, length) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, length, kRowHeight);
  pen.clip();
  pen.strokeStyle = theme.chart;
  for (let at = x - kRowHeight; at < x + length; at += 5) stroke(pen, [[at, y + kRowHeight], [at + kRowHeight, y]]);
  pen.restore();
}

function showMap() {
  if (!memory || memory.segments.count === 0) {
    const unknown = 'The file does not tell in which segments its blocks lie.';
    return absent('map', 'The allocator’s segments', memory ? unknown : absentHistory());
  }
  const slider =
      el('input', {type: 'range', min: 0, max: memory.moments - 1, step: 1, 'aria-label': 'Moment of the map'});
  const when = el('span', {class: 'when'}), host = el('div', {class: 'map'}),
        card = el('div', {class: 'beside', 'aria-live': 'polite'});
  slider.addEventListener('input', () => change({moment: Number(slider.value)}));
  fill(
      $('map'),
      heading(
          'map', 'The allocator’s segments',
          el('div', {class: 'tools'}, button('Peak', 'Go to the peak', () => change({moment: memory.peak})),
             button(
                 memory.failure === null ? 'End' : 'Failure',
                 'Go to the ' + (memory.failure === null ? 'end' : 'failure'), () => change({moment: memory.shown})))),
      el('div', {class: 'moment'}, slider, when), host,
      el('p', {class: 'note', id: 'map-keys'},
         'One length is one number of bytes everywhere; lines wrap. Coloured pieces are blocks, in the colours of their places above; ' +
             'grey ones are holes; hatched ones are freed but still in use by another stream. ←/→ goes from piece to piece.'),
      card);
  const map = new SegmentMap(host);
  let hole = null;
  const tell = () => {
    slider.value = state.moment;
    slider.setAttribute('aria-valuetext', beforeText(state.moment));
    when.textContent = beforeText(state.moment);
    card.replaceChildren(
        ...(state.block >= 0 ? [blockCard(state.block, state.moment)] :
                hole         ? [el('div', {class: 'card'}, ...map.holeLines(hole))] :
                               []));
  };
  map.told = (under) => {
    hole = under;
    tell();
  };
  whenChanged((what) => {
    if ('moment' in what) hole = null;
    tell();
  });
  tell();
}
