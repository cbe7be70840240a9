// The blocks of a span of time as bands of pixels, stacked in the order of their allocation.
//
// The chart looks at the history once for each column of pixels. A block that comes and goes between two looks is not
// drawn; the line of the most in use shows it. Blocks lower than a pixel are put together, by colour, on top of the
// others. So a picture costs one pass over the blocks and one over the pixels, however many events there are.

const kLeastHeight = 1;  // pixels: lower blocks are put together

// Where each block begins and ends on the axis: in moments, or in microseconds.
function extents(byTime) {
  const {blocks, times, moments} = memory;
  if (!byTime) return {from: blocks.from, until: blocks.until};
  const end = times[moments - 1] + Math.max(1, times[moments - 1] / 500);
  const at = (column) => Float64Array.from(column, (moment) => moment >= moments ? end : times[moment]);
  return {from: at(blocks.from), until: at(blocks.until)};
}

// view: {x0, x1} on the axis, {y0, y1} in bytes. Gives the lowest block that is drawn for itself. It changes in steps,
// so that bands do not flicker while one zooms.
function leastShown(view, height) {
  const bytes = kLeastHeight * (view.y1 - view.y0) / height;
  return 2 ** Math.floor(Math.log2(Math.max(1, bytes)));
}

class BandPainter {
  // Width and height in pixels of the canvas.
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.top = new Float64Array(width);  // what is stacked so far
    this.small = Array.from({length: kColours}, () => new Float64Array(width + 1));
  }

  paint(view, extent, most) {
    this.pixels.fill(theme.ground);
    this.top.fill(0);
    for (const row of this.small) row.fill(0);
    this.view = view;
    this.scale = this.height / (view.y1 - view.y0);
    this.stackBlocks(extent, leastShown(view, this.height));
    this.stackSmall();
    this.fillUpTo(most);
    return this.image;
  }

  stackBlocks(extent, least) {
    const {blocks, place} = memory;
    const {from, until} = extent;
    const {x0, x1} = this.view;
    const perColumn = (x1 - x0) / this.width, count = blocks.count;
    for (let i = 0; i < count && from[i] < x1; ++i) {
      if (until[i] <= x0) continue;
      const first = from[i] <= x0 ? 0 : Math.max(0, Math.ceil((from[i] - x0) / perColumn - 0.5));
      const last = Math.min(this.width, Math.ceil((until[i] - x0) / perColumn - 0.5));
      if (first >= last) continue;
      const colour = ranks.colour[place[i]];
      if (blocks.bytes[i] < least) {
        this.small[colour][first] += blocks.bytes[i];
        this.small[colour][last] -= blocks.bytes[i];
      } else {
        this.stackOne(i, first, last, colour);
      }
    }
  }

  stackOne(block, first, last, colour) {
    const bytes = memory.blocks.bytes[block];
    const faded = state.place >= 0 && memory.place[block] !== state.place;
    const fill = block === state.block ? theme.chosen : faded ? theme.faded[colour] : theme.fills[colour];
    const edge = block === state.block || faded ? theme.ground : theme.edges[colour];
    let start = first;
    for (let c = first + 1; c <= last; ++c) {
      if (c < last && this.top[c] === this.top[start]) continue;
      this.box(start, c, this.top[start], this.top[start] + bytes, fill, edge);
      start = c;
    }
    for (let c = first; c < last; ++c) this.top[c] += bytes;
  }

  stackSmall() {
    for (let colour = 0; colour < kColours; ++colour) {
      const row = this.small[colour];
      const fill = state.place >= 0 ? theme.faded[colour] : theme.fills[colour];
      for (let c = 0, bytes = 0; c < this.width; ++c) {
        bytes += row[c];
        if (bytes < 1) continue;
        this.box(c, c + 1, this.top[c], this.top[c] + bytes, fill, fill);
        this.top[c] += bytes;
      }
    }
  }

  // What came and went between two looks.
  fillUpTo(most) {
    for (let c = 0; c < this.width; ++c)
      if (most[c] > this.top[c]) this.box(c, c + 1, this.top[c], most[c], theme.gone, theme.gone);
  }

  // Columns [first, last), bytes [low, high); the upper edge in its own colour where there is room for it.
  box(first, last, low, high, fill, edge) {
    const y = (bytes) =>
        Math.max(0, Math.min(this.height, this.height - Math.round((bytes - this.view.y0) * this.scale)));
    const above = y(high), below = y(low);
    if (above >= below) return;
    const lined = below - above > 2;
    for (let row = above; row < below; ++row) {
      const at = row * this.width;
      const colour = lined && row === above ? edge : fill;
      if (last - first < 8)
        for (let c = at + first; c < at + last; ++c) this.pixels[c] = colour;
      else
        this.pixels.fill(colour, at + first, at + last);
    }
  }
}

// The most of a column of numbers in any range, from the most of each 64 of them.
class RangeMost {
  constructor(numbers) {
    this.numbers = numbers;
    this.coarse = new Float64Array(Math.ceil(numbers.length / 64)).fill(-Infinity);
    for (let i = 0; i < numbers.length; ++i)
      if (numbers[i] > this.coarse[i >> 6]) this.coarse[i >> 6] = numbers[i];
  }
  // Of [first, last); at least of the first.
  of(first, last) {
    let most = this.numbers[first];
    for (let i = first; i < last;) {
      if (i % 64 === 0 && i + 64 <= last) {
        if (this.coarse[i >> 6] > most) most = this.coarse[i >> 6];
        i += 64;
      } else {
        if (this.numbers[i] > most) most = this.numbers[i];
        ++i;
      }
    }
    return most;
  }
}
