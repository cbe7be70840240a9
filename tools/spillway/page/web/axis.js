// The axes of the time chart: moments or microseconds along, bytes up.

class Axis {
  constructor() {
    this.byTime = false;
    this.extent = {false: extents(false), true: null};
    this.end = {
      false: memory.moments,
      true: memory.times[memory.moments - 1] + Math.max(1, memory.times[memory.moments - 1] / 500)
    };
  }
  get whole() { return this.end[this.byTime]; }
  extents() { return this.extent[this.byTime] || (this.extent[this.byTime] = extents(this.byTime)); }
  // Of a moment: where it begins.
  at(moment) { return this.byTime ? memory.times[Math.min(moment, memory.moments - 1)] : moment; }
  momentAt(x) {
    if (!this.byTime) return Math.max(0, Math.min(memory.moments - 1, Math.floor(x)));
    let low = 0, high = memory.moments;  // the last that begins at or before x
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (memory.times[middle] <= x)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  text(x, span) {
    if (!this.byTime) return countText(x);
    const digits = Math.max(0, Math.ceil(-Math.log10(span / 1e6 / 8)));
    return (x / 1e6).toFixed(Math.min(6, digits)) + ' s';
  }
}

// Whole powers of two, which sizes are.
function byteTicks(low, high, count) {
  const step = 2 ** Math.ceil(Math.log2((high - low) / count));
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

// Before the failure, or the end, in words.
function beforeText(moment) {
  const end = memory.failure === null ? 'the end' : 'the failure';
  if (moment === memory.shown) return 'at ' + end;
  return apartText(moment, memory.shown) + (moment < memory.shown ? ' before ' : ' after ') + end;
}
