// Where each segment and block stands on the map: lengths are bytes, lines wrap as text does.

const kRowHeight = 16, kRowGap = 3, kLabelHeight = 24;

function segmentsAt(moment) {
  const {segments, expandable} = memory;
  const live = [];
  for (let i = 0; i < segments.count; ++i)
    if (segments.from[i] <= moment && segments.until[i] > moment)
      live.push({address: segments.address[i], size: segments.size[i], owner: segments.owner[i], blocks: []});
  live.sort((a, b) => a.owner - b.owner || a.address - b.address);
  if (!expandable) return live;
  // The parts of an expandable segment touch.
  return live.reduce((joined, one) => {
    const last = joined[joined.length - 1];
    if (last && last.owner === one.owner && last.address + last.size === one.address)
      last.size += one.size;
    else
      joined.push(one);
    return joined;
  }, []);
}

function fillSegments(live, moment) {
  const {blocks} = memory;
  const byAddress = live.slice().sort((a, b) => a.address - b.address);
  for (let i = 0; i < blocks.count && blocks.from[i] <= moment; ++i) {
    if (blocks.until[i] <= moment) continue;
    let low = 0, high = byAddress.length;  // the last segment that begins at or before the block
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (byAddress[middle].address <= blocks.address[i])
        low = middle;
      else
        high = middle;
    }
    const segment = byAddress[low];
    if (segment && blocks.address[i] >= segment.address && blocks.address[i] < segment.address + segment.size)
      segment.blocks.push(i);
  }
}

// Blocks and holes in turn: {start, end, block}, a hole has block -1.
function piecesOf(segment) {
  const {blocks} = memory;
  const pieces = [];
  const end = segment.address + segment.size;
  let at = segment.address;
  segment.blocks.sort((a, b) => blocks.address[a] - blocks.address[b]);
  for (const block of segment.blocks) {
    const start = Math.max(at, blocks.address[block]), stop = Math.min(end, blocks.address[block] + blocks.held[block]);
    if (start > at) pieces.push({start: at, end: start, block: -1});
    if (stop > start) pieces.push({start, end: stop, block});
    at = Math.max(at, stop);
  }
  if (end > at) pieces.push({start: at, end, block: -1});
  return pieces;
}

// Groups by pool and stream, each with its lines: {title, y, rows, segments}, and each segment's offset in pixels along
// them.
function layOut(moment, width) {
  const live = segmentsAt(moment);
  fillSegments(live, moment);
  const total = live.reduce((sum, segment) => sum + segment.size, 0);
  const perPixel = Math.max(1, total / (width * (width < 500 ? 36 : 22)));
  // Small segments stay longer than the gaps between them.
  const gap = Math.max(1, Math.min(3, 0.12 * total / perPixel / live.length));
  const groups = [];
  for (const segment of live) {
    let group = groups[groups.length - 1];
    if (!group || group.owner !== segment.owner)
      groups.push(group = {owner: segment.owner, segments: [], bytes: 0, length: 0, largest: 0});
    segment.offset = group.length;
    segment.length = Math.max(1, segment.size / perPixel);
    segment.pieces = piecesOf(segment);
    for (const piece of segment.pieces)
      if (piece.block < 0) group.largest = Math.max(group.largest, piece.end - piece.start);
    group.length += segment.length + gap;
    group.bytes += segment.size;
    group.segments.push(segment);
  }
  let y = 0;
  for (const group of groups) {
    group.y = y + kLabelHeight;
    group.rows = Math.ceil(group.length / width);
    y = group.y + group.rows * (kRowHeight + kRowGap) + 8;
  }
  return {groups, perPixel, width, height: y, moment};
}

function poolName(owner) {
  const {pool, stream} = memory.segments.owners[owner];
  const name = pool[0] === 0 && pool[1] === 0 ? 'default pool' : 'pool ' + pool.join('.');
  return name + ', stream ' + (stream ? addressText(stream) : '0');
}

// The boxes of a stretch of a group's lines: [x, y, width] each.
function boxesOf(layout, group, from, to) {
  const boxes = [];
  for (let at = from; at < to;) {
    const row = Math.floor(at / layout.width), end = Math.min(to, (row + 1) * layout.width);
    boxes.push([at - row * layout.width, group.y + row * (kRowHeight + kRowGap), end - at]);
    at = end > at ? end : to;
  }
  return boxes;
}

function pieceBoxes(layout, group, segment, piece) {
  const along = (address) => segment.offset + (address - segment.address) / segment.size * segment.length;
  return boxesOf(layout, group, along(piece.start), along(piece.end));
}

function pieceAt(layout, x, y) {
  for (const group of layout.groups) {
    const row = Math.floor((y - group.y) / (kRowHeight + kRowGap));
    if (row < 0 || row >= group.rows) continue;
    const along = row * layout.width + x;
    const segment = group.segments.find((one) => along >= one.offset && along < one.offset + one.length);
    if (!segment) return null;
    const address = segment.address + (along - segment.offset) / segment.length * segment.size;
    const piece = segment.pieces.find((one) => address >= one.start && address < one.end);
    return piece ? {group, segment, piece} : null;
  }
  return null;
}
