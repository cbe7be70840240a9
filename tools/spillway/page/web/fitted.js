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
  const alternatives = report.counterfactuals || [], unanswered = report.no_counterfactuals;
  if (!alternatives.length && !unanswered) return $('fitted').remove();
  fill($('fitted'), heading('fitted', 'What would have fitted'));
  if (unanswered) return fill($('fitted'), el('p', {class: 'absent'}, 'No answer: ' + unanswered + '.'));
  const columns = [['fits', false], ['what', false], ['how it is known', false], ['', false]];
  fill($('fitted'), table('What would have fitted', columns, alternatives.map(fittedRow)));
  for (const note of report.less_sure || []) fill($('fitted'), el('p', {class: 'note'}, 'Less sure: ' + note));
  fill(
      $('fitted'),
      el('p', {class: 'note'}, 'It is about this request. What the program would have asked for next is not known.'));
}
