// Who held the memory: a table that can be filtered and sorted.

const kRowsShown = 12;
const kHolderColumns = [
  ['bytes', 'bytes', (holder) => holder.bytes],
  ['share', 'share', (holder) => holder.bytes],
  ['blocks', 'blocks', (holder) => holder.blocks],
  ['oldest', 'oldest', (holder) => holder.oldest_us === null ? Infinity : holder.oldest_us],
  ['growth', 'growth a step', (holder) => holder.growth ? holder.growth.bytes_per_step : -1],
  ['where', 'place', (holder) => holder.where],
];

// Without a clock nothing has an age.
const holderColumns = () => kHolderColumns.filter(([key]) => key !== 'oldest' || hasClock());

class HolderTable {
  constructor(host, foot) {
    this.host = host;
    this.foot = foot;
    this.filter = '';
    this.by = 'bytes';
    this.down = true;
    this.all = false;
    whenChanged((what) => 'place' in what && this.draw());
  }

  show(holders, whole) {
    this.holders = holders;
    this.whole = whole;
    this.draw();
  }

  chosen() {
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const value = kHolderColumns.find(([key]) => key === this.by)[2];
    const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (this.down ? -1 : 1);
    return this.holders
        .filter((holder) => {
          const text = (holder.where + ' ' + holder.caller).toLowerCase();
          return words.every((word) => text.includes(word));
        })
        .sort(order);
  }

  draw() {
    const rows = this.chosen(), shown = this.all || this.filter ? rows : rows.slice(0, kRowsShown);
    const sum = rows.reduce((bytes, holder) => bytes + holder.bytes, 0);
    const head = holderColumns().map(
        ([key, text]) =>
            el('th', {
              scope: 'col',
              class: key === 'where' ? null : 'number',
              'aria-sort': key === this.by ? (this.down ? 'descending' : 'ascending') : null,
            },
               el('button', {type: 'button', onclick: () => this.sortBy(key)}, text)));
    this.host.replaceChildren(
        el('table', null, el('thead', null, el('tr', null, ...head)),
           el('tbody', null, ...shown.map((holder) => this.row(holder)))));
    this.foot.replaceChildren(
        plural(rows.length, 'place', 'places') + ', ' + sizeText(sum) + ', ' + shareText(sum, this.whole) +
            ' of what was in use. ',
        rows.length > shown.length ? el('button', {type: 'button', onclick: () => this.showAll()}, 'Show all') : '');
  }

  showAll() {
    this.all = true;
    this.draw();
  }

  sortBy(key) {
    this.down = key === this.by ? !this.down : key !== 'where';
    this.by = key;
    this.draw();
  }

  row(holder) {
    const place = memory ?
        memory.stacks.places.findIndex((one) => one.where === holder.where && one.caller === holder.caller) :
        -1;
    const share = el('span', {class: 'share'}, el('span', {class: 'length'}), shareText(holder.bytes, this.whole));
    share.firstChild.style.width = (this.whole > 0 ? 100 * holder.bytes / this.whole : 0) + '%';
    const name = [
      el('span', {class: 'where'}, holder.where),
      holder.caller ? el('span', {class: 'more'}, 'from ' + holder.caller) : ''
    ];
    const cell = place < 0 ? el('span', null, ...name) :
                             el('button', {
                               type: 'button',
                               class: 'link',
                               'aria-pressed': String(state.place === place),
                               title: 'Show it alone in the charts',
                               onclick: () => change({place: state.place === place ? -1 : place}),
                             },
                                swatch(ranks.colour[place]), el('span', null, ...name));
    return el(
        'tr', {class: place >= 0 && place === state.place ? 'chosen' : null},
        el('td', {class: 'number', title: exactText(holder.bytes)}, sizeText(holder.bytes)),
        el('td', {class: 'number'}, share), el('td', {class: 'number'}, countText(holder.blocks)),
        hasClock() ?
            el('td', {class: 'number'}, holder.oldest_us === null ? 'before history' : durationText(holder.oldest_us)) :
            null,
        el('td', {class: 'number'},
           holder.growth ? el('b', {class: 'grows'}, '+' + sizeText(holder.growth.bytes_per_step)) : '–'),
        el('td', null, cell));
  }
}

function showHolders() {
  const title = report.failure || incident ? 'Who held it' : 'Who holds it';
  if (!found) return absent('holders', title, absentHistory());
  if (hasNoStacks()) return absent('holders', title, kNoStacks);
  if (!found.holders.length && !found.peak.holders.length) return absent('holders', title, 'Nothing was in use.');
  const host = el('div', {class: 'scroll holders', role: 'region', 'aria-label': title, tabindex: 0}),
        foot = el('p', {class: 'note', 'aria-live': 'polite'});
  const filter = el('input', {type: 'search', placeholder: 'Filter places', 'aria-label': 'Filter places'});
  const told = !found.failure && !incident && report.at_last && report.at_last.told_ns !== null ? report.at_last : null;
  const lists = {
    told: told && [told.holders, told.in_use_bytes],
    shown: [found.holders, found.memory.in_use_bytes],
    peak: [found.peak.holders, found.peak.in_use_bytes]
  };
  const holders = new HolderTable(host, foot);
  filter.addEventListener('input', () => {
    holders.filter = filter.value;
    holders.draw();
  });
  const first = told ? 'told' : found.failure || !found.peak.holders.length ? 'shown' : 'peak';
  const moments = [['shown', found.failure ? 'at the failure' : 'at the end'], ['peak', 'at the peak']];
  if (told) moments.unshift(['told', 'as the process told last']);
  const which = told || found.peak.holders.length ?
      choice('Moment of the table', moments, first, (key) => holders.show(...lists[key])) :
      null;
  fill(
      $('holders'), heading('holders', title, filter, which), host, foot,
      el('p', {class: 'note'},
         (hasClock() ? 'Oldest is the age of the oldest block. ' : '') +
             'Growth is what each of the program’s steps leaves and does not free again. A place is the ' +
             'innermost line outside PyTorch; the program’s own line that led there stands below it.'));
  holders.show(...lists[first]);
  if (found.kinds.length) fill($('holders'), el('h3', null, kKindsTitle), kindTable());
}

const kKindsTitle = 'What it was for, as far as the stacks tell';

// Blocks of one size are mostly tensors of one shape.
function kindTable() {
  const whole = found.kinds.reduce((sum, kind) => sum + kind.bytes, 0);
  const sizes = (kind) => kind.sizes.map((size) => countText(size.blocks) + ' × ' + sizeText(size.block_bytes));
  return table(
      kKindsTitle, [['bytes', true], ['share', true], ['blocks', true], ['made by', false], ['most of it', false]],
      found.kinds.map(
          (kind) =>
              [sizeText(kind.bytes), shareText(kind.bytes, whole), countText(kind.blocks), kind.made_by,
               sizes(kind).join(', ')]));
}
