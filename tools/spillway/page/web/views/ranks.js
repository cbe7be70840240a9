// The ranks of one training side by side: how they ended, what each had, and in what they differ.

const training = data.ranks || null;

function reportedRanks() { return training.rows.filter((row) => row.reported); }

function allEndedWell() {
  return !training.incident && training.rows.every((row) => row.reported && row.verdict === 'done');
}

function ranksText() {
  const incident = training.incident;
  if (incident) return incident.cause + '.';
  return allEndedWell() ? 'All ranks came to the end.' : 'Not all ranks came to the end, and none reports an incident.';
}

function showRanksVerdict() {
  const incident = training.incident;
  const mood = incident ? 'bad' : allEndedWell() ? 'good' : 'calm';
  const head = plural(training.rows.length, 'rank', 'ranks');
  const first =
      incident && (incident.rank < 0 ? 'no single rank failed first' : 'rank ' + incident.rank + ' failed first');
  $('path').textContent = data.path;
  document.title = head + ' · ' + data.path + ' · Spillway report';
  $('verdict').classList.add('mood-' + mood);
  const facts = [['start', training.start], ['incident', incident && incident.number]];
  fill(
      $('verdict'),
      el('h1', {id: 'verdict-head'}, el('span', {class: 'chip'}, head),
         el('span', {class: 'cause'}, first || (mood === 'good' ? 'done' : 'ended'))),
      el('p', {class: 'verdict-text'}, ranksText()),
      el('dl', {class: 'facts', 'aria-label': 'The training'},
         ...facts.filter(([, value]) => value)
             .map(([name, value]) => el('div', null, el('dt', null, name), el('dd', null, value)))));
}

// In use within reserved, all to one scale; a limit beyond it is not seen.
function rankBar(row, scale) {
  const bar = el('span', {class: 'rank-bar', 'aria-hidden': 'true'});
  for (const [kind, bytes] of [
           ['limit', row.limit_bytes], ['reserved', row.reserved_bytes], ['live', row.live_bytes]]) {
    const part = el('span', {class: kind});
    part.style.width = 100 * bytes / scale + '%';
    bar.append(part);
  }
  return bar;
}

function bytesOrNone(bytes) { return bytes ? sizeText(bytes) : '–'; }

function rankCells(row, scale) {
  if (!row.reported) return [row.rank, '–', '–', '–', '–', '–', '–', '', 'no report of this start: it was killed', ''];
  return [
    row.rank, row.last_step === null ? '–' : countText(row.last_step), bytesOrNone(row.live_bytes),
    bytesOrNone(row.reserved_bytes), bytesOrNone(row.limit_bytes), countText(row.moves),
    durationText(row.waited_seconds * 1e6), rankBar(row, scale), row.verdict, el('code', null, row.plan)
  ];
}

function showRanks() {
  const scale = 1.05 * Math.max(1, ...reportedRanks().map((row) => row.reserved_bytes));
  const columns = [
    ['rank', true], ['last step', true], ['in use', true], ['reserved', true], ['limit', true], ['moves', true],
    ['waited', true], ['', false], ['how it ended', false], ['plan', false]
  ];
  fill(
      $('ranks'), heading('ranks', 'Ranks, with the most memory of a step'),
      table('Ranks', columns, training.rows.map((row) => rankCells(row, scale))),
      el('p', {class: 'note'},
         'The bars have one scale: memory in use within what was reserved for it, and a near limit as a line. ' +
             'Waited is the time at the host in sums and comparisons: the rank that waits least is waited for.'));
}

function showDifferences() {
  const lines = training.differences;
  fill(
      $('differences'), heading('differences', 'Differences'),
      lines.length ? el('ul', {class: 'refused'}, ...lines.map((line) => el('li', null, line))) :
                     el('p', {class: 'absent'}, 'The ranks that reported do not differ.'));
}
