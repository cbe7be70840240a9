// What stands in the program at the places that the report names, where its sources were at hand.

function showLines() {
  const lines = report.source_lines || [];
  if (!lines.length) return $('lines').remove();
  const rows = lines.map(({place, line}) => [el('span', {class: 'where'}, place), el('code', null, line)]);
  fill(
      $('lines'), heading('lines', 'Those lines'),
      table('Those lines', [['place', false], ['what stands there', false]], rows));
}
