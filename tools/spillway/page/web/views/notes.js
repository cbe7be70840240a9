// The settings, how far the file can be relied on, and the words.

function factsTable(facts) {
  return el(
      'dl', {class: 'plain'},
      ...facts.filter(([, text]) => text !== null && text !== undefined && text !== '')
          .flatMap(([name, text]) => [el('dt', null, name), el('dd', null, String(text))]));
}

function snapshotFacts() {
  const history = report.history;
  return [
    ['file', report.incomplete ? 'NOT WHOLE: ' + report.incomplete : 'whole'],
    [
      'history',
      history.events ? plural(history.events, 'event', 'events') +
              (history.microseconds ? ' in ' + durationText(history.microseconds) : '') :
                       'none'
    ],
    ['steps', rehearsal ? '' : history.steps || ''],
    ['besides', report.remark],
    [
      'contradictions',
      history.contradictions ? plural(history.contradictions, 'event does', 'events do') +
              ' not go with the blocks: what was held then is not certain' :
                               'none'
    ],
    ['passed over', report.passed_over ? plural(report.passed_over, 'entry', 'entries') + ' of an unknown form' : ''],
    ['device', 'GPU ' + report.device],
  ];
}

function traceFacts() {
  const whole = report.completeness, run = report.run;
  const memory = run.memory.map(
      (one) => 'device ' + one.device + ': peak ' + sizeText(one.peak_reserved_bytes) + ' reserved, ' +
          sizeText(one.peak_live_bytes) + ' live' + (one.limit_bytes ? ', limit ' + sizeText(one.limit_bytes) : ''));
  return [
    ['file', whole.whole ? 'whole' : 'NOT WHOLE: ' + whole.incomplete],
    [
      'records lost',
      whole.overwritten + ' overwritten (' + (whole.overwritten_rare || 'no') + ' failures or steps among them), ' +
          whole.dropped + ' dropped, ' + whole.torn + ' torn'
    ],
    ['process', run.process + (run.ended ? ', it exited' : ', it was cut off or still ran')],
    [
      'failures',
      report.incidents.length + ': ' + run.rescued + ' rescued in place, ' + run.unwound +
          ' done again with another plan, ' + run.gave_up + ' not rescued' +
          (run.undecided ? ', ' + run.undecided + ' without an outcome' : '')
    ],
    ['steps', run.steps_ended ? plural(run.steps_ended, 'step', 'steps') + ' ended' : ''],
    ['memory', memory.join('; ')],
  ];
}

const kWords = {
  'block': 'What a program gets for one request.',
  'segment': 'A range of addresses that the allocator got from the driver and cuts into blocks.',
  'reserved': 'All that the allocator holds: blocks in use and holes.',
  'hole, idle': 'Free memory inside a segment. A request fits only where one piece is long enough.',
  'pending': 'Freed, but another stream may still use it. It comes back when that stream’s work is done.',
  'pool': 'A part of the allocator’s memory that only some requests may use, such as those of a CUDA graph.',
  'rounding': 'What the allocator gives beyond what was asked for.',
  'stranded': 'Free bytes that no request can use.',
  'outside': 'The CUDA context, other libraries and other processes.',
  'place': 'The innermost line outside PyTorch that asked for the memory.',
  'peak': 'The moment at which the most was in use.',
  'leak':
      'What the program’s steps leave behind is more than the request that failed and an eighth of what was in use.',
  'fragmentation': 'Enough was free, but in pieces that are too small.',
  'incident': 'One request that could not be served at once, and all that was tried for it.',
  'ladder': 'The strategies that make room, the cheapest first.',
};

function showNotes() {
  const settings = Object.entries(report.settings || {});
  fill(
      $('notes'), heading('notes', 'The file, its settings, the words'),
      el('div', {class: 'columns'},
         el('div', null, el('h3', null, 'The file'), factsTable([
              ...(data.kind !== 'trace' ? snapshotFacts() : traceFacts()), ['page by', 'Spillway ' + data.spillway]
            ])),
         el('div', null, el('h3', null, 'Settings'),
            settings.length ? factsTable(settings) : el('p', {class: 'absent'}, 'The file holds none.')),
         el('div', {class: 'wide'}, el('h3', null, 'Words'),
            el('dl', {class: 'plain words'},
               ...Object.entries(kWords).flatMap(([word, text]) => [el('dt', null, word), el('dd', null, text)])))));
}
