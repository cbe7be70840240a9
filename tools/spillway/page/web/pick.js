// Which block is at a point of the time chart, and what is told of a block.

// The stack at a moment as the painter stacks it: the block at `bytes` up, or the colour of small ones put together.
function blockAt(moment, bytes, least) {
  const {blocks, place} = memory;
  const small = new Float64Array(kColours), counts = new Uint32Array(kColours);
  let top = 0;
  for (let i = 0; i < blocks.count && blocks.from[i] <= moment; ++i) {
    if (blocks.until[i] <= moment) continue;
    if (blocks.bytes[i] < least) {
      const colour = ranks.colour[place[i]];
      small[colour] += blocks.bytes[i];
      ++counts[colour];
      continue;
    }
    top += blocks.bytes[i];
    if (bytes < top) return {block: i};
  }
  for (let colour = 0; colour < kColours; ++colour) {
    top += small[colour];
    if (small[colour] > 0 && bytes < top) return {small: small[colour], count: counts[colour], colour};
  }
  return {};
}

function ageText(block, moment) {
  const {blocks} = memory;
  return blocks.from[block] === 0 ? 'since before the history' : apartText(blocks.from[block], moment) + ' old';
}

function endText(block) {
  const {blocks, moments} = memory;
  if (blocks.until[block] >= moments) return 'not freed in the history';
  return 'freed after ' + apartText(blocks.from[block], blocks.until[block]);
}

function blockTip(block, moment) {
  return [
    el('b', null, sizeText(memory.blocks.bytes[block])), el('span', null, ageText(block, moment)),
    el('span', null, placeText(memory.place[block]))
  ];
}

function frameText(frame) {
  const {texts, file, line} = memory.stacks;
  const path = texts[file[frame]];
  return line[frame] ? path + ':' + line[frame] : path;
}

function framesOf(stack) {
  const {frames, start} = memory.stacks;
  return Array.from(frames.subarray(start[stack], start[stack + 1]));
}

// The innermost frame comes first, as in PyTorch's files.
function stackList(stack) {
  const frames = framesOf(stack);
  if (!frames.length) return el('p', {class: 'note'}, 'No stack was recorded.');
  return el(
      'ol', {class: 'frames'},
      ...frames.map(
          (frame) =>
              el('li', {class: memory.stacks.native[frame] ? 'native' : null},
                 el('b', null, memory.stacks.texts[memory.stacks.function [frame]]), ' ',
                 el('span', null, frameText(frame)))));
}

// The chosen block in full.
function blockCard(block, moment) {
  const {blocks, place} = memory;
  const rounding = blocks.held[block] - blocks.bytes[block];
  const facts = [
    [
      'size',
      sizeText(blocks.bytes[block]) + ' (' + exactText(blocks.bytes[block]) + ')' +
          (rounding ? ', and ' + sizeText(rounding) + ' of rounding' : '')
    ],
    ['age', ageText(block, moment) + ', ' + endText(block)],
    ['place', placeText(place[block])],
    ['address', addressText(blocks.address[block])],
  ];
  if (blocks.pending[block] < blocks.until[block] && blocks.pending[block] <= moment)
    facts.push(['state', 'freed, but another stream may still use it']);
  return el(
      'div', {class: 'card'},
      el('div', {class: 'head'},
         el('h3', null, swatch(ranks.colour[place[block]]), 'Block of ' + sizeText(blocks.bytes[block])),
         button('×', 'Close', () => change({block: -1}))),
      el('dl', {class: 'plain'}, ...facts.flatMap(([name, text]) => [el('dt', null, name), el('dd', null, text)])),
      stackList(blocks.stack[block]));
}
