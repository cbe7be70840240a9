// What would have fitted, where the report has looked into it.

const kAnswers = {
  true: ['yes', 'good'],
  false: ['no', 'bad'],
  null: ['not known', 'calm']
};

function fittedRow(one) {
  const [answer, mood] = kAnswers[one.fits];
  const what = [el('span', null, one.what), one.setting ? el('span', {class: 'more'}, one.setting) : null];
  return [el('span', {class: 'chip mood-' + mood}, answer), el('span', null, ...what), one.sure, one.text];
}

function showFitted() {
  const rehearsed = rehearsal ? rehearsal.answers : [];
  const alternatives = [...rehearsed, ...(report.counterfactuals || [])];
  const unanswered = rehearsed.length ? null : report.no_counterfactuals;
  if (!alternatives.length && !unanswered) return $('fitted').remove();
  const title = rehearsal && rehearsal.verdict.head === 'FITS' ? 'What fits' : 'What would have fitted';
  fill($('fitted'), heading('fitted', title));
  if (unanswered) return fill($('fitted'), el('p', {class: 'absent'}, 'No answer: ' + unanswered + '.'));
  const columns = [['fits', false], ['what', false], ['how it is known', false], ['', false]];
  fill($('fitted'), table(title, columns, alternatives.map(fittedRow)));
  for (const note of report.less_sure || []) fill($('fitted'), el('p', {class: 'note'}, 'Less sure: ' + note));
  for (const note of rehearsal ? rehearsal.not_run : [])
    fill($('fitted'), el('p', {class: 'note'}, 'Not run: ' + note + '.'));
  if (!(report.counterfactuals || []).length) return;
  const which = rehearsed.length ? 'What is replayed or reckoned' : 'It';
  fill(
      $('fitted'),
      el('p', {class: 'note'},
         which + ' is about this request. What the program would have asked for next is not known.'));
}
