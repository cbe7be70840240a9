// What would have served the request that failed: replays and sums, and what to type for each.

const kAnswers = new Map([[true, ['fits', 'good']], [false, ['does not', 'bad']], [null, ['not found out', 'calm']]]);
const kSureness = {replayed: 'every request was given again', arithmetic: 'bytes of the file, added up', estimate: 'the program may need other bytes then'};

function alternativeRow(item) {
  const [answer, mood] = kAnswers.get(item.fits);
  return [el('span', {class: 'chip mood-' + mood}, answer),
    el('div', null, el('b', null, item.what), item.setting && item.fits !== false ? el('div', null, el('code', null, item.setting)) : ''),
    item.text, el('span', {title: kSureness[item.sure]}, item.sure)];
}

function showFitted() {
  const items = report.counterfactuals || [];
  if (!items.length) {
    $('fitted').remove();
    return;
  }
  fill($('fitted'), heading('fitted', 'What would have fitted'),
    table('What would have fitted', [['', false], ['with', false], ['what it shows', false], ['how it is known', false]], items.map(alternativeRow)),
    el('p', {class: 'note'}, 'It is about this request. What the program would have asked for next is not known.'));
}
