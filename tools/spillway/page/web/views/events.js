// What happened last before the failure, folded.

function whenText(group) {
  if (group.from_us === null || group.until_us === null) return '';
  const from = durationText(group.from_us), until = durationText(group.until_us);
  return from === until ? from : from + ' to ' + until;
}

function showEvents() {
  const last = report.last_events;
  if (!last || !last.groups.length) return $('events').remove();
  const title = last.before_the_failure ? 'Before the failure' : 'The last events';
  const columns = [[last.before_the_failure ? 'before it' : 'before the end', true], ['what', false], ['place', false]];
  const place = (group) =>
      el('span', null, el('span', {class: 'where'}, group.where || ''),
         group.caller ? el('span', {class: 'more'}, 'from ' + group.caller) : null);
  const rows = last.groups.map((group) => [whenText(group), group.text, place(group)]);
  const rest = [
    last.earlier ? plural(last.earlier, 'event is', 'events are') + ' older.' : '',
    last.later ? plural(last.later, 'event', 'events') + ' came after it, such as what the exception freed.' : ''
  ];
  fill(
      $('events'), heading('events', title), table(title, columns, rows),
      el('p', {class: 'note'}, rest.filter(Boolean).join(' ')));
}
