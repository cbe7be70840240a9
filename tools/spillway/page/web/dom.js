// Elements, and what the views share: the chosen moment, block and place. Text is only ever set as text.

const $ = (id) => document.getElementById(id);

// el('p', {class: 'note', onclick: f}, 'text', child)
function el(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on'))
      element.addEventListener(key.slice(2), value);
    else
      element.setAttribute(key, value === true ? '' : value);
  }
  return fill(element, ...children);
}

// Children that are not there are left out.
function fill(parent, ...children) {
  parent.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

function heading(id, text, ...beside) {
  return el('div', {class: 'head'}, el('h2', {id: id + '-head'}, text), ...beside);
}

// A view whose data the file does not hold is hidden; `showMissing` says so of all of them in one place.
const missing = new Map();

function absent(id, title, why) {
  missing.set(why, [...(missing.get(why) || []), title]);
  $(id).remove();
}

function showMissing() {
  const notes =
      Array.from(missing, ([why, titles]) => el('p', {class: 'absent'}, el('b', null, titles.join(', ')), ': ' + why));
  if (notes.length)
    $('notes').before(
        el('section', {'aria-labelledby': 'missing-head'}, heading('missing', 'Not in this file'), ...notes));
}

function button(text, label, press) {
  return el('button', {type: 'button', 'aria-label': label, title: label, onclick: press}, text);
}

// A choice of one among a few.
function choice(label, options, chosen, choose) {
  const buttons = options.map(
      ([value, text]) =>
          el('button', {type: 'button', 'aria-pressed': String(value === chosen), onclick: () => pick(value)}, text));
  const pick = (value) => {
    options.forEach(([one], i) => buttons[i].setAttribute('aria-pressed', String(one === value)));
    choose(value);
  };
  return el('div', {class: 'choice', role: 'group', 'aria-label': label}, ...buttons);
}

// A table that scrolls by itself on a narrow screen; columns: [text, is a number].
function table(label, columns, rows) {
  const cell = (name, i, content) =>
      el(name, {class: columns[i][1] ? 'number' : null, scope: name === 'th' ? 'col' : null}, content);
  return el(
      'div', {class: 'scroll', role: 'region', 'aria-label': label, tabindex: 0},
      el('table', null, el('thead', null, el('tr', null, ...columns.map(([text], i) => cell('th', i, text)))),
         el('tbody', null, ...rows.map((row) => el('tr', null, ...row.map((content, i) => cell('td', i, content)))))));
}

const state = {
  moment: 0,
  block: -1,
  place: -1
};
const listeners = [];

function whenChanged(listener) { listeners.push(listener); }

function change(what) {
  if (Object.keys(what).every((key) => state[key] === what[key])) return;
  Object.assign(state, what);
  for (const listener of listeners) listener(what);
}

// Many changes in one frame are drawn once.
function drawSoon(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
}

function showTip(x, y, ...lines) {
  const tip = $('tip');
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8), below = y + 18 + tip.offsetHeight < innerHeight;
  tip.style.left = Math.max(8, left) + 'px';
  tip.style.top = (below ? y + 16 : y - tip.offsetHeight - 12) + 'px';
}

function hideTip() { $('tip').hidden = true; }
