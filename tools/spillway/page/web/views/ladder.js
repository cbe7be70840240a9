// The ladder's story: for each allocation failure of a trace what was tried, and what came of it.

const kOutcomes = {
  granted: ['rescued', 'good'],
  unwind: ['done again with another plan', 'good'],
  'gave up': ['not rescued', 'bad']
};
const kIncidentsShown = 200;

function outcomeChip(one) {
  const [text, mood] = kOutcomes[one.outcome] || ['no outcome: the trace ends here', 'calm'];
  return el('span', {class: 'chip mood-' + mood}, text);
}

// Expected and gained as two bars of one scale.
function gains(tried, most, isChosen) {
  const line = (bytes, kind) => {
    const box = el('span', {class: 'length ' + kind});
    box.style.width = (most > 0 ? 100 * bytes / most : 0) + '%';
    return box;
  };
  return el(
      'span', {class: 'gains', 'aria-hidden': 'true'}, line(tried.offered_bytes, 'expected'),
      isChosen ? '' : line(tried.gained_bytes, 'gained'));
}

function tryRow(one, tried, i, most) {
  const isChosen = one.outcome === 'unwind' && i === one.ladder.length - 1;
  return [
    String(i + 1), tried.strategy, tried.guarantee || 'unknown', sizeText(tried.offered_bytes),
    isChosen ? 'plan move' : sizeText(tried.gained_bytes), gains(tried, most, isChosen),
    durationText(tried.microseconds)
  ];
}

function story(one) {
  const most =
      Math.max(one.short_bytes, ...one.ladder.map((tried) => Math.max(tried.offered_bytes, tried.gained_bytes)));
  const tries = one.ladder.length ? table(
                                        'What was tried for incident ' + one.incident,
                                        [
                                          ['', true], ['strategy', false], ['guarantee', false], ['expected', true],
                                          ['gained', true], ['', false], ['time', true]
                                        ],
                                        one.ladder.map((tried, i) => tryRow(one, tried, i, most))) :
                                    el('p', {class: 'note'}, 'Nothing was tried.');
  const refused = one.refused.map(({strategy, why}) => el('li', null, el('b', null, strategy), ': ' + why));
  return el(
      'details', {open: one.incident === report.shown_incident, 'aria-label': 'Incident ' + one.incident},
      el('summary', null, el('span', null, 'Incident ' + one.incident),
         el('span', null, sizeText(one.requested_bytes) + ' asked, ' + sizeText(one.short_bytes) + ' short'),
         stepText(one) ? el('span', null, stepText(one)) : '', outcomeChip(one)),
      el('p', null, el('b', null, one.cause), ': ' + one.verdict + '.'), tries,
      refused.length ? el('div', null, el('h3', null, 'What was not tried'), el('ul', {class: 'refused'}, ...refused)) :
                       '',
      el('p', {class: 'note'}, sizeText(one.gained_bytes) + ' gained in ' + durationText(one.microseconds) + '.'));
}

function strategyTotals(run) {
  const names = Object.keys(run.strategies);
  if (!names.length) return '';
  return el(
      'div', null, el('h3', null, 'Strategies over the whole run'),
      table(
          'Strategies over the whole run',
          [['strategy', false], ['tried', true], ['useful', true], ['gained', true], ['time', true]],
          names.map((name) => {
            const total = run.strategies[name];
            return [
              name, countText(total.tried), countText(total.useful), sizeText(total.gained_bytes),
              durationText(total.microseconds)
            ];
          })));
}

function planChanges(run) {
  if (!run.plan_changes.length) return '';
  return el(
      'div', null, el('h3', null, 'Changes of the plan'),
      table(
          'Changes of the plan', [['step', true], ['incident', true], ['reason', false]],
          run.plan_changes.slice(-kIncidentsShown)
              .map(
                  (change) =>
                      [String(change.step), change.incident ? String(change.incident) : '',
                       change.reason || 'no reason given'])));
}

function otherIncidents(shown) {
  const others = shown.filter((one) => one.incident !== report.shown_incident);
  if (!others.length) return null;
  return el(
      'details', {class: 'others', 'aria-label': 'Other incidents'},
      el('summary', null, el('span', null, plural(others.length, 'other incident', 'other incidents'))),
      ...others.map(story));
}

function showLadder() {
  if (data.kind !== 'trace') {
    $('ladder').remove();
    return;
  }
  const all = report.incidents;
  const shown = all.filter((one, i) => i >= all.length - kIncidentsShown || one.incident === report.shown_incident);
  fill(
      $('ladder'), heading('ladder', 'What was tried'),
      shown.length ? '' : el('p', {class: 'absent'}, 'Nothing was tried.'),
      ...shown.filter((one) => one.incident === report.shown_incident).map(story), otherIncidents(shown),
      all.length > shown.length ?
          el('p', {class: 'note'}, 'The last ' + shown.length + ' of ' + all.length + ' are shown; --json has all.') :
          '',
      strategyTotals(report.run), planChanges(report.run));
}
