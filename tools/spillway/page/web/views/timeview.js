// The section of the time chart: its buttons, what the chosen moment holds, and the legend.

function showTime() {
  if (!memory || memory.moments < 3) return absent('time', 'Memory over time', absentHistory());
  const host = el('div', {class: 'chart'});
  const now = el('p', {class: 'now'}), card = el('div', {class: 'beside'});
  const legend = el('ul', {class: 'legend', 'aria-label': 'Colours of the places'});
  const axis = !hasClock() ? null :
                             choice(
                                 'What the chart goes along', [[false, 'by event'], [true, 'by time']], false,
                                 (byTime) => chart.setByTime(byTime));
  const tools =
      el('div', {class: 'tools', role: 'group', 'aria-label': 'Zoom'},
         button('−', 'Zoom out', () => chart.scaleBy(1 / 2)), button('+', 'Zoom in', () => chart.scaleBy(2)),
         button('↧', 'Lower bands', () => chart.stretch(1 / 2, chart.height)),
         button('↥', 'Taller bands', () => chart.stretch(2, chart.height)),
         button('Fit', 'Stretch what changes in the span shown to the whole height', () => chart.fit()),
         button('Peak', 'Go to the peak', () => visit(memory.peak)),
         memory.failure === null ? null : button('Failure', 'Go to the failure', () => visit(memory.failure)),
         button('Whole', 'Show the whole history', () => chart.whole()));
  fill(
      $('time'), heading('time', 'Memory over time', axis, tools), now, host, legend,
      el('p', {class: 'note', id: 'time-keys'},
         'Each band is a block, stacked in the order of allocation; blocks lower than a pixel are put together by place, on top. Pale grey came and went within a pixel. The line is ' +
             'what the allocator held' + (memory.steps.length ? ', short ticks at the foot are steps' : '') +
             '. Wheel or +/− zooms, Shift with the wheel or [ ] stretches, T fits the height, drag moves, a click or ←/→ chooses a moment, ↑/↓ a block, ' +
             'P the peak, F the failure, 0 the whole.' +
             (data.kind === 'trace' ? ' Memory that was moved off the card is drawn as if it were there.' : '')),
      card);
  const chart = new Timeline(host);
  const visit = (moment) => {
    change({moment});
    if (chart.transform.k < 8) chart.showAround(moment, 1 / 8);
  };
  const tell = () => {
    now.replaceChildren(...momentFacts(state.moment));
    card.replaceChildren(...(state.block >= 0 ? [blockCard(state.block, state.moment)] : []));
    fillLegend(legend);
  };
  whenChanged(tell);
  tell();
}

function absentHistory() {
  return data.kind === 'trace' ?
      'This trace holds no history of its allocations.' :
      rehearsal ?
      'No event of PyTorch’s allocator was seen in this rehearsal.' :
      'This snapshot holds no history. Call torch.cuda.memory._record_memory_history() before the first allocation to record one.';
}

function momentFacts(moment) {
  const fact = (name, text) => el('span', null, name + ' ', el('b', null, text));
  return [
    fact('event', countText(moment) + ' of ' + countText(memory.moments - 1)),
    el('span', null, el('b', null, beforeText(moment))), fact('in use', sizeText(memory.inUse[moment])),
    memory.segments.count ? fact('held by the allocator', sizeText(memory.reserved[moment])) : ''
  ];
}

// The places by colour, and what each holds at the chosen moment.
function fillLegend(legend) {
  const bytes = bytesByPlace(state.moment);
  const other = bytes.reduce((sum, held, place) => sum + (ranks.colour[place] === kOther ? held : 0), 0);
  const entry = (place, rank) =>
      el('li', null,
         el('button', {
           type: 'button',
           'aria-pressed': String(state.place === place),
           title: placeText(place),
           onclick: () => change({place: state.place === place ? -1 : place}),
         },
            swatch(rank), el('span', {class: 'name'}, memory.stacks.places[place].where),
            el('span', {class: 'held'}, sizeText(bytes[place]))));
  const own = ranks.order.slice(0, kOther).filter((place) => ranks.most[place] > 0);
  const rest = memory.stacks.places.length - own.length;
  legend.replaceChildren(
      ...own.map(entry),
      ...(rest > 0 ? [el('li', null,
                         el('span', {class: 'entry'}, swatch(kOther),
                            el('span', {class: 'name'}, plural(rest, 'other place', 'other places')),
                            el('span', {class: 'held'}, sizeText(other))))] :
                     []));
}
