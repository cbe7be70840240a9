// The flame graph: the bytes that were live, by the stacks that allocated them. The outermost frame is on top.

const kFlameRow = 23;
const kLeastShare = 0.0015;  // narrower boxes are not drawn

function bytesByStack(moment) {
  const {blocks} = memory;
  const bytes = new Map();
  for (let i = 0; i < blocks.count && blocks.from[i] <= moment; ++i)
    if (blocks.until[i] > moment) bytes.set(blocks.stack[i], (bytes.get(blocks.stack[i]) || 0) + blocks.bytes[i]);
  return bytes;
}

// Which frames are shown: the program's own, all of Python's, or those of C++ too.
const kFrames = {
  own: (frame) => !memory.stacks.native[frame] &&
      !/\/(site|dist)-packages\/|^<frozen |\/lib\/python3/.test(memory.stacks.texts[memory.stacks.file[frame]]),
  python: (frame) => !memory.stacks.native[frame],
  all: () => true,
};

// Frames of a stack as {key, name, file}, the outermost first.
function flameFrames(stack, which) {
  const {texts} = memory.stacks;
  const shown = framesOf(stack).reverse().filter(kFrames[which]);
  if (!shown.length)
    return [{key: 'p' + memory.stacks.place[stack], name: placeText(memory.stacks.place[stack]), file: ''}];
  return shown.map((frame) => ({key: frame, name: texts[memory.stacks.function [frame]], file: frameText(frame)}));
}

function flameTree(moment, frames) {
  const root = {name: 'in use ' + beforeText(moment), file: '', self: 0, inner: new Map()};
  for (const [stack, bytes] of bytesByStack(moment)) {
    let node = root;
    for (const frame of flameFrames(stack, frames)) {
      if (!node.inner.has(frame.key)) node.inner.set(frame.key, {...frame, self: 0, inner: new Map()});
      node = node.inner.get(frame.key);
    }
    node.self += bytes;
  }
  const tree = d3.hierarchy(root, (node) => Array.from(node.inner.values()))
                   .sum((node) => node.self)
                   .sort((a, b) => b.value - a.value);
  return d3.partition()(tree);
}

function hueOf(file) {
  let hash = 0;
  for (const letter of file.replace(/:\d+$/, '')) hash = (hash * 31 + letter.codePointAt(0)) | 0;
  return Math.abs(hash) % 6;
}

class FlameGraph {
  constructor(host) {
    this.host = host;
    host.addEventListener('keydown', (event) => this.pressed(event));
    host.addEventListener('mouseleave', hideTip);
  }

  show(tree) {
    this.tree = tree;
    this.zoomTo(tree);
  }

  zoomTo(node) {
    this.node = node;
    const shown = node.descendants().filter((one) => (one.x1 - one.x0) >= kLeastShare * (node.x1 - node.x0));
    const above = node.ancestors().slice(1).reverse();
    this.boxes = new Map();
    this.host.replaceChildren(
        ...above.map((one) => this.box(one, 0, 1)),
        ...shown.map(
            (one) => this.box(one, (one.x0 - node.x0) / (node.x1 - node.x0), (one.x1 - one.x0) / (node.x1 - node.x0))));
    const depth = shown.reduce((most, one) => Math.max(most, one.depth), 0);
    this.host.style.height = (depth + 1) * kFlameRow + 'px';
    this.setFocus(node, false);
  }

  box(node, left, width) {
    const {name, file} = node.data;
    const share = shareText(node.value, this.tree.value), pixels = width * this.host.clientWidth;
    const box = el(
        'button', {
          type: 'button',
          tabindex: -1,
          class: (node.depth ? 'f' + hueOf(file) : 'root') + (pixels > 24 ? '' : ' thin'),
          'aria-label': name + ' ' + file + ', ' + sizeText(node.value) + ', ' + share,
          onclick: () => this.zoomTo(node === this.node && node.parent ? node.parent : node),
          onfocus: () => this.setFocus(node, false),
          onmousemove: (event) => showTip(
              event.clientX, event.clientY, el('b', null, sizeText(node.value) + ' · ' + share), el('span', null, name),
              el('span', null, file)),
        },
        pixels > 24 ? el('b', null, name) : null, pixels > 130 && file ? el('span', null, ' ' + shortFile(file)) : null,
        pixels > 250 ? el('i', null, sizeText(node.value)) : null);
    box.style.left = 100 * left + '%';
    box.style.width = 100 * width + '%';
    box.style.top = node.depth * kFlameRow + 'px';
    this.boxes.set(node, box);
    return box;
  }

  setFocus(node, move) {
    if (!this.boxes.has(node)) return;
    if (this.boxes.has(this.focus)) this.boxes.get(this.focus).tabIndex = -1;
    this.focus = node;
    this.boxes.get(node).tabIndex = 0;
    if (move) this.boxes.get(node).focus();
  }

  pressed(event) {
    const at = this.focus, beside = at.parent ? at.parent.children : [at];
    const to = {
      ArrowUp: at.parent,
      ArrowDown: at.children && at.children[0],
      ArrowLeft: beside[beside.indexOf(at) - 1],
      ArrowRight: beside[beside.indexOf(at) + 1],
    };
    if (event.key === 'Escape') this.zoomTo(this.tree);
    if (!(event.key in to)) return;
    event.preventDefault();
    if (to[event.key]) this.setFocus(to[event.key], true);
  }
}

function shortFile(file) { return file.split('/').slice(-2).join('/'); }

const kNoStacks = 'This trace holds no stacks of its allocations.';

function hasNoStacks() { return data.kind === 'trace' && memory !== null && memory.stacks.frames.length === 0; }

function showFlame() {
  if (!memory) return absent('flame', 'Live bytes by stack', absentHistory());
  if (hasNoStacks()) return absent('flame', 'Live bytes by stack', kNoStacks);
  const host = el('div', {class: 'flame', role: 'group', 'aria-label': 'Flame graph'});
  const graph = new FlameGraph(host);
  let moment = state.moment, frames = 'python';
  const draw = () => graph.show(flameTree(moment, frames));
  const moments =
      [[memory.shown, memory.failure === null ? 'at the end' : 'at the failure'], [memory.peak, 'at the peak']];
  const when = memory.peak === memory.shown ? null : choice('Moment of the flame graph', moments, moment, (chosen) => {
    moment = chosen;
    draw();
  });
  const kinds = [['own', 'program'], ['python', 'Python']];
  if (memory.stacks.native.some((native) => native === 1)) kinds.push(['all', 'with C++']);
  const which = memory.stacks.frames.length ? choice('Frames', kinds, frames, (chosen) => {
    frames = chosen;
    draw();
  }) : null;
  fill(
      $('flame'), heading('flame', 'Live bytes by stack', which, when), host,
      el('p', {class: 'note'},
         'The width of a frame is what it and what it called held. A click looks closer, another one goes back; arrows move, Esc shows all.' +
             (memory.peak === memory.shown ? ' The peak was at the failure.' : '')));
  draw();
}
