// What pointer and keys do on the time chart, besides d3's zoom and drag.

function listenTo(chart) {
  chart.plot.addEventListener('wheel', (event) => {
    if (!event.shiftKey) return;
    event.preventDefault();
    const turned = event.deltaY || event.deltaX;
    chart.stretch(2 ** (-turned / 300), event.clientY - chart.plot.getBoundingClientRect().top);
  }, {passive: false});
  chart.plot.addEventListener('mousemove', (event) => event.buttons ? hideTip() : tellUnder(chart, event));
  chart.plot.addEventListener('mouseleave', hideTip);
  chart.plot.addEventListener('click', (event) => {
    const {moment, block} = chart.under(event);
    change({moment, block: block === undefined ? -1 : block});
  });
  chart.plot.addEventListener('keydown', (event) => press(chart, event));
}

function tellUnder(chart, event) {
  const {moment, block, small, count, colour} = chart.under(event);
  const head = el('span', {class: 'when'}, beforeText(moment) + ' · ' + sizeText(memory.inUse[moment]) + ' in use');
  if (block !== undefined) return showTip(event.clientX, event.clientY, head, ...blockTip(block, moment));
  if (!small) return showTip(event.clientX, event.clientY, head);
  const of = colour === kOther ? 'of other places' : 'of ' + placeText(ranks.order[colour]);
  showTip(
      event.clientX, event.clientY, head, el('b', null, sizeText(small)),
      el('span', null, plural(count, 'small block ', 'small blocks ') + of));
}

function press(chart, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const view = chart.view(),
        step = Math.max(1, Math.round((chart.axis.momentAt(view.x1) - chart.axis.momentAt(view.x0)) / 200));
  const go = (moment) => change({moment: Math.max(0, Math.min(memory.moments - 1, moment))});
  const keys = {
    ArrowLeft: () => go(state.moment - step),
    ArrowRight: () => go(state.moment + step),
    PageUp: () => go(state.moment - 20 * step),
    PageDown: () => go(state.moment + 20 * step),
    Home: () => go(0),
    End: () => go(memory.moments - 1),
    ArrowUp: () => chooseNext(1),
    ArrowDown: () => chooseNext(-1),
    '+': () => chart.scaleBy(1.5),
    '=': () => chart.scaleBy(1.5),
    '-': () => chart.scaleBy(1 / 1.5),
    ']': () => chart.stretch(1.5, chart.height),
    '[': () => chart.stretch(1 / 1.5, chart.height),
    0: () => chart.whole(),
    p: () => go(memory.peak),
    f: () => go(memory.shown),
    t: () => chart.fit(),
    Escape: () => change({block: -1, place: -1}),
  };
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!keys[key]) return;
  event.preventDefault();
  keys[key]();
}

// The next block of the stack at the moment, upwards or downwards; small ones are passed over.
function chooseNext(direction) {
  const {blocks} = memory;
  const least = memory.inUse[state.moment] / 1000;
  const live = [];
  for (let i = 0; i < blocks.count && blocks.from[i] <= state.moment; ++i)
    if (blocks.until[i] > state.moment && blocks.bytes[i] >= least) live.push(i);
  if (!live.length) return;
  const now = live.indexOf(state.block);
  const next =
      now < 0 ? (direction > 0 ? 0 : live.length - 1) : Math.max(0, Math.min(live.length - 1, now + direction));
  change({block: live[next]});
}
