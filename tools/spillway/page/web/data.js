// The page's data: what `--json` gives as it is, and the history's columns as typed arrays (page/columns.h).

const data = JSON.parse(document.getElementById('data').textContent);

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function countOf(bytes) {
  let count = 0;
  for (let i = 0; i < bytes.length; ++i) count += bytes[i] < 128 ? 1 : 0;
  return count;
}

// Numbers of up to 53 bits: the high groups are added, because shifts have 32.
function numbersOf(base64, Type) {
  const bytes = bytesOf(base64);
  const numbers = new Type(countOf(bytes));
  for (let i = 0, n = 0; n < numbers.length; ++n) {
    let byte = bytes[i++];
    let number = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[i++];
      number += (byte & 127) * scale;
    }
    numbers[n] = number;
  }
  return numbers;
}

// Each number is the difference to the one before; odd ones are negative.
function stepsOf(base64, Type, unit = 1) {
  const steps = numbersOf(base64, Float64Array);
  const numbers = new Type(steps.length);
  let last = 0;
  for (let i = 0; i < steps.length; ++i) {
    const half = Math.floor(steps[i] / 2);
    last += steps[i] % 2 ? -half - 1 : half;
    numbers[i] = last * unit;
  }
  return numbers;
}

function readStacks(from) {
  const depth = numbersOf(from.depth, Uint32Array);
  const start = new Uint32Array(depth.length + 1);
  for (let i = 0; i < depth.length; ++i) start[i + 1] = start[i] + depth[i];
  // In a snapshot what has no stack is of another thread; in a trace nobody asked for stacks.
  const place = numbersOf(from.place, Uint32Array);
  if (data.kind === 'trace')
    for (let i = 0; i < depth.length; ++i)
      if (depth[i] === 0) from.places[place[i]] = {where: 'no stack was recorded', caller: ''};
  return {
    texts: from.texts,
    places: from.places,
    function: numbersOf(from.function, Uint32Array),
    file: numbersOf(from.file, Uint32Array),
    line: numbersOf(from.line, Float64Array),
    native: numbersOf(from.native, Uint8Array),
    frames: numbersOf(from.frames, Uint32Array),
    place,
    start,
  };
}

function readBlocks(from, moments) {
  const count = from.count;
  const blocks = {
    count,
    from: stepsOf(from.from, Uint32Array),
    until: new Uint32Array(count),
    pending: new Uint32Array(count),
    bytes: numbersOf(from.bytes, Float64Array),
    held: numbersOf(from.extra, Float64Array),
    address: stepsOf(from.address, Float64Array, from.address_unit),
    stack: numbersOf(from.stack, Uint32Array),
  };
  const life = numbersOf(from.life, Float64Array);
  const pending = numbersOf(from.pending, Float64Array);
  for (let i = 0; i < count; ++i) {
    blocks.until[i] = Math.min(moments, blocks.from[i] + life[i]);
    blocks.pending[i] = blocks.until[i] - pending[i];
    blocks.held[i] += blocks.bytes[i];
  }
  return blocks;
}

function readSegments(from) {
  const column = (name) => numbersOf(from[name], Float64Array);
  return {
    count: from.count,
    owners: from.owners,
    from: column('from'),
    until: column('until'),
    address: column('address'),
    size: column('size'),
    owner: column('owner'),
  };
}

// What was there at each moment, from when each thing came and went.
function levelOf(moments, from, until, bytes) {
  const level = new Float64Array(moments + 1);
  for (let i = 0; i < from.length; ++i) {
    level[from[i]] += bytes[i];
    level[until[i]] -= bytes[i];
  }
  for (let i = 1; i < moments; ++i) level[i] += level[i - 1];
  return level.subarray(0, moments);
}

// A moment begins with the event before it.
function timesOf(moments, base64) {
  const events = stepsOf(base64, Float64Array);
  const times = new Float64Array(moments);
  const start = events.length ? events[0] : 0;
  let last = 0;
  for (let i = 0; i < events.length; ++i) {
    last = Math.max(last, events[i] - start);  // a damaged file's clock may run backwards
    times[i + 1] = last;
  }
  return times;
}

function readHistory(from) {
  const moments = from.moments;
  const blocks = readBlocks(from.blocks, moments);
  const segments = readSegments(from.segments);
  const stacks = readStacks(from.stacks);
  const place = new Uint32Array(blocks.count);
  for (let i = 0; i < blocks.count; ++i) place[i] = stacks.place[blocks.stack[i]];
  return {
    moments,
    blocks,
    segments,
    stacks,
    place,
    times: timesOf(moments, from.times),
    inUse: levelOf(moments, blocks.from, blocks.until, blocks.bytes),
    reserved: levelOf(moments, segments.from, segments.until, segments.size),
    peak: from.peak,
    failures: from.failures,
    failure: from.failures.length ? from.failures[0].moment : null,
    steps: from.steps,
    expandable: from.expandable,
    // What the findings speak of: the failure, else the end.
    shown: from.failures.length ? from.failures[0].moment : moments - 1,
  };
}

const report = data.report;
// What was found in the history: a snapshot's report, or what a trace's history told.
const found = data.kind !== 'trace' ? report : data.found || null;
const rehearsal = data.rehearsal || null;
const incident =
    data.kind === 'trace' ? report.incidents.find((one) => one.incident === report.shown_incident) || null : null;

const hasClock = () => memory !== null && memory.times[memory.moments - 1] > 0;

// A history without a clock counts its events.
function apartText(from, to) {
  if (hasClock()) return durationText(Math.abs(memory.times[to] - memory.times[from]));
  return plural(Math.abs(to - from), 'event', 'events');
}

// Of the card, or what Spillway may use of it; null where the file does not say.
function capacityBytes() {
  return (found && found.memory.capacity_bytes) || (incident && incident.equation.limit_bytes) || null;
}

const memory = data.history && data.history.blocks.count > 0 ? readHistory(data.history) : null;
