// Which colour a place has: the places that held most have one of their own, all others share the last.

const kColours = 10;
const kOther = kColours - 1;

function bytesByPlace(moment) {
  const {blocks, place, stacks} = memory;
  const bytes = new Float64Array(stacks.places.length);
  for (let i = 0; i < blocks.count && blocks.from[i] <= moment; ++i)
    if (blocks.until[i] > moment) bytes[place[i]] += blocks.bytes[i];
  return bytes;
}

// What each place held on average of all moments.
function averageByPlace() {
  const {blocks, place, stacks, moments} = memory;
  const average = new Float64Array(stacks.places.length);
  for (let i = 0; i < blocks.count; ++i)
    average[place[i]] += blocks.bytes[i] * (blocks.until[i] - blocks.from[i]) / moments;
  return average;
}

// Of all places, by what each held at the failure, at the peak or on average, whichever is most.
function rankPlaces() {
  const atShown = bytesByPlace(memory.shown), atPeak = bytesByPlace(memory.peak), average = averageByPlace();
  const most = atShown.map((bytes, i) => Math.max(bytes, atPeak[i], average[i]));
  const order = Array.from(most.keys()).sort((a, b) => most[b] - most[a]);
  const colour = new Uint8Array(most.length).fill(kOther);
  order.slice(0, kOther).forEach((place, rank) => {
    colour[place] = rank;
  });
  return {colour, order, most};
}

const ranks = memory ? rankPlaces() : null;

function cssColour(name) { return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim(); }

function rgbOf(hex) { return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)); }

function mix(a, b, part) { return a.map((value, i) => Math.round(value * (1 - part) + b[i] * part)); }

// As canvases' pixels hold it.
function pixelOf([red, green, blue]) { return (255 << 24 | blue << 16 | green << 8 | red) >>> 0; }

// The colours of the theme now; `faded` for what is not of the chosen place.
function readTheme() {
  const ground = rgbOf(cssColour('chart'));
  const fills = Array.from({length: kColours}, (_, i) => rgbOf(cssColour('c' + i)));
  const hexes = Array.from({length: kColours}, (_, i) => cssColour('c' + i));
  return {
    ground: pixelOf(ground),
    hexes,
    fills: Uint32Array.from(fills, pixelOf),
    edges: Uint32Array.from(fills, (fill) => pixelOf(mix(fill, ground, 0.55))),
    faded: Uint32Array.from(fills, (fill) => pixelOf(mix(fill, ground, 0.82))),
    chosen: pixelOf(rgbOf(cssColour('ink'))),
    gone: pixelOf(mix(rgbOf(cssColour('muted')), ground, 0.7)),
    ink: cssColour('ink'),
    muted: cssColour('muted'),
    line: cssColour('line'),
    bad: cssColour('bad'),
    chart: cssColour('chart'),
    mark: cssColour('mark'),
    hole: cssColour('hole'),
  };
}

let theme = null;

function placeText(place) {
  const {where, caller} = memory.stacks.places[place];
  return caller ? where + ' from ' + caller : where;
}

function swatch(colour) { return el('span', {class: 'swatch s' + colour, 'aria-hidden': 'true'}); }

function setTheme(choice) {
  if (choice === 'auto')
    delete document.documentElement.dataset.theme;
  else
    document.documentElement.dataset.theme = choice;
  theme = readTheme();
  change({theme: choice + (matchMedia('(prefers-color-scheme: dark)').matches ? '+' : '-')});
}

// What is drawn is drawn anew, at once, for the width and the colours of paper.
const drawnForPaper = [];

function print(begins) {
  document.documentElement.classList.toggle('paper', begins);
  if (begins) setTheme('light');
  for (const draw of drawnForPaper) draw();
}

// Automatic, light, dark, by turns.
function startTheme() {
  const choices = [['auto', 'Auto', 'as the system'], ['light', 'Light', 'light'], ['dark', 'Dark', 'dark']];
  let now = 0;
  const show = () => {
    const [choice, text, label] = choices[now];
    $('theme').textContent = text;
    $('theme').setAttribute('aria-label', 'Colours: ' + label);
    setTheme(choice);
  };
  $('theme').addEventListener('click', () => {
    now = (now + 1) % choices.length;
    show();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  addEventListener('beforeprint', () => print(true));
  addEventListener('afterprint', () => {
    print(false);
    show();
  });
  show();
}
