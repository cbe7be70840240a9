// The verdict, the request that failed, and the equation of where the memory was.

// What a rehearsal says comes first: it knows how the program ended.
function verdictOfRehearsal() {
  const {head, mood, condition, cause, text} = rehearsal.verdict;
  return {mood, head, rest: condition ? condition + '.' : null, cause, text};
}

function verdictOf() {
  if (rehearsal) return verdictOfRehearsal();
  if (data.kind !== 'trace') {
    if (!report.verdict)
      return {mood: 'calm', head: 'NO FAILURE', cause: '', text: 'No request failed in what the file tells.'};
    return {mood: 'bad', head: 'OUT OF MEMORY', cause: report.verdict.cause, text: report.verdict.text + '.'};
  }
  if (!incident) return {mood: 'calm', head: 'NO FAILURE', cause: '', text: data.headline};
  const [head, rest] =
      data.headline ? data.headline.split(/: (.*)/s) : ['NOT DECIDED', 'the trace ends before an outcome.'];
  return {
    mood: head === 'RESCUED'   ? 'good' :
        head === 'NOT RESCUED' ? 'bad' :
                                 'calm',
    head,
    rest,
    cause: incident.cause,
    text: incident.verdict + '.',
  };
}

// What usually helps, by the cause.
const kHelp = {
  leak:
      'Something keeps what each step makes: a list of losses with their graphs, a cache, a closure. Look at the line that grows.',
  growth:
      'What is in use is made larger each time, or kept by each pass of a loop: keys and values that are copied, a state that carries ' +
      'its graph on, results that stay on the card. A bound, detach() or the host’s memory end it.',
  capacity:
      'The program needs more than there is. Smaller batches, recomputed activations, a sharded or moved optimizer state need less; ' +
      'spillway rehearse tries them without a GPU.',
  fragmentation:
      'The bytes are there, in pieces that are too small. PyTorch’s setting expandable_segments:True, or Spillway as the allocator, joins them.',
  'pool isolation':
      'The free bytes belong to other pools or streams, such as those of CUDA graphs. Fewer pools, or graphs that share one, leave more.',
  'pending frees':
      'The bytes are freed, but other streams may still use them. Waiting for those streams before the request gives them back.',
  limit: 'The process has a limit below the card’s size. Raise it, or stay below it.',
  reserve:
      'The card has the memory, and --reserve leaves it to other libraries. A smaller reserve gives it to the program.',
  'other processes': 'Other processes hold the rest of the card. spillway top shows which.',
  'outside bytes':
      'Much of the card is held outside the allocator: the CUDA context, other libraries. Fewer processes or libraries on it leave more.',
};

function poolText(pool) { return pool === 0 ? 'default pool' : 'pool ' + pool; }

function snapshotRequest() {
  const failure = report.failure;
  if (!failure) return [];
  const facts = [
    ['asked', sizeText(failure.asked_bytes), exactText(failure.asked_bytes)],
    ['device', 'GPU ' + failure.device, 'stream ' + (failure.stream ? addressText(failure.stream) : '0')],
    ['place', failure.where, failure.caller && 'from ' + failure.caller],
  ];
  if (report.failures > 1) facts.push(['failures', countText(report.failures), 'This is the last of them.']);
  return facts;
}

// The program's own step, else how far its optimizers were; '' where neither is known.
function stepText({step, optimizer_steps: begun}) {
  if (step) return 'step ' + step.step + (step.attempt ? ', attempt ' + step.attempt : '');
  return begun ? 'after optimizer step ' + begun + ' began' : '';
}

function traceRequest() {
  if (!incident) return [];
  const facts = [
    ['asked', sizeText(incident.requested_bytes), exactText(incident.requested_bytes)],
    ['short', sizeText(incident.short_bytes), 'rounded to ' + sizeText(incident.rounded_bytes)],
    [
      'device', 'device ' + incident.device,
      [
        'stream ' + (incident.stream ? addressText(incident.stream) : '0'),
        incident.pool !== null && poolText(incident.pool)
      ].filter(Boolean)
          .join(', ')
    ],
  ];
  if (incident.library) facts.push(['asked by', incident.library, '']);
  const step = stepText(incident);
  if (step || incident.phase) facts.push(['when', step || 'step unknown', incident.phase && 'phase ' + incident.phase]);
  const asker = incident.asked_by;
  if (asker) facts.push(['place', asker.where, asker.caller && 'from ' + asker.caller]);
  return facts;
}

function requestFacts() {
  if (rehearsal) return [...rehearsal.facts, ...snapshotRequest()];
  return data.kind === 'trace' ? traceRequest() : snapshotRequest();
}

function showVerdict() {
  const verdict = verdictOf();
  $('path').textContent = data.path;
  document.title = verdict.head + ' · ' + data.path.replace(/.*\//, '') + ' · Spillway report';
  const facts = requestFacts();
  $('verdict').classList.add('mood-' + verdict.mood);
  fill(
      $('verdict'),
      el('h1', {id: 'verdict-head'}, el('span', {class: 'chip'}, verdict.head),
         verdict.cause ? el('span', {class: 'cause'}, verdict.cause) : null),
      el('p', {class: 'verdict-text'}, verdict.text),
      verdict.rest ? el('p', {class: 'note'}, verdict.rest[0].toUpperCase() + verdict.rest.slice(1)) : null,
      facts.length ?
          el('dl', {class: 'facts', 'aria-label': report.failure || incident ? 'The request that failed' : 'The run'},
             ...facts.map(
                 ([name, value, more]) =>
                     el('div', null, el('dt', null, name),
                        el('dd', null, value, more ? el('span', {class: 'more'}, more) : null)))) :
          null,
      verdict.mood !== 'good' && kHelp[verdict.cause] ?
          el('p', {class: 'help'}, el('b', null, 'What helps: '), kHelp[verdict.cause]) :
          null);
}

// {total, parts, rest}: the parts add up to the total, but for the rest.
function equationOf() {
  if (rehearsal && rehearsal.equation) return {...rehearsal.equation, rest: 0, missing: 0};
  const bytes = data.kind !== 'trace' ? report.memory : incident ? incident.equation : {};
  const parts = data.terms.map((term) => ({...term, bytes: bytes[term.key + '_bytes']}))
                    .filter((term) => term.bytes !== null && term.bytes !== undefined);
  const sum = parts.reduce((total, part) => total + part.bytes, 0);
  if (data.kind === 'trace') {
    if (!bytes.limit_bytes) return driverEquation(bytes);
    const missing = data.terms.length - parts.length;
    return {
      name: 'limit',
      total: bytes.limit_bytes,
      parts,
      rest: bytes.limit_bytes - sum,
      missing,
      largest: bytes.largest_extent_bytes,
      largestName: 'largest usable extent'
    };
  }
  const name = bytes.capacity_bytes && bytes.outside_bytes !== null ? 'card' :
      bytes.reserved_bytes === null                                 ? 'in use' :
      bytes.free_bytes !== null                                     ? 'reserved + free' :
                                                                      'reserved';
  return {
    name,
    total: sum,
    parts,
    rest: 0,
    missing: 0,
    largest: bytes.largest_idle_bytes,
    largestName: 'largest idle piece',
    unknown: bytes.free_bytes !== null && bytes.outside_bytes === null
  };
}

// Another library's call of the driver: the trace knows the card and what was free.
function driverEquation({device_bytes: device, free_bytes: free}) {
  if (!device || free === undefined) return null;
  const parts = [
    {key: 'others', name: 'taken', meaning: 'by this and other processes', bytes: device - free},
    {key: 'free', name: 'free', meaning: 'of the card', bytes: free}
  ];
  return {name: 'card', total: device, parts, rest: 0, missing: 0};
}

function requestedBytes() {
  return incident    ? incident.rounded_bytes || incident.requested_bytes :
      report.failure ? report.failure.asked_bytes :
                       0;
}

function bar(equation) {
  const whole = Math.max(equation.total, requestedBytes());
  const piece = (part) => {
    const box =
        el('span', {class: 'part t-' + part.key, title: part.name + ' ' + sizeText(part.bytes)},
           part.bytes / whole > 0.09 ? el('span', null, part.name, el('b', null, sizeText(part.bytes))) : null);
    box.style.width = 100 * part.bytes / whole + '%';
    return box;
  };
  const scaled = (name, bytes, kind) => {
    const line =
        el('div', {class: 'scaled ' + kind}, el('span', {class: 'length'}),
           el('span', null, name + ' ' + sizeText(bytes)));
    line.firstChild.style.width = 100 * bytes / whole + '%';
    return line;
  };
  return el(
      'div', {class: 'stack', 'aria-hidden': 'true'},
      el('div', {class: 'parts'}, ...equation.parts.filter((part) => part.bytes > 0).map(piece)),
      requestedBytes() ? scaled('the request', requestedBytes(), 'asked') : null,
      equation.largest > 0 ? scaled(equation.largestName, equation.largest, 'largest') : null);
}

function equationRows(equation) {
  const rows = equation.parts.map(
      (part, i) =>
          [el('span', null, el('span', {class: 'swatch t-' + part.key, 'aria-hidden': 'true'}),
              (i ? '+ ' : '= ') + part.name),
           sizeText(part.bytes), exactText(part.bytes), shareText(part.bytes, equation.total), part.meaning]);
  const whole = [el('b', null, equation.name), sizeText(equation.total), exactText(equation.total), '', ''];
  if (equation.rest === 0 && equation.missing === 0)
    whole[4] = 'The lines below add up to it.';
  else
    rows.push([
      'the rest', sizeText(equation.rest), exactText(equation.rest), shareText(equation.rest, equation.total),
      equation.missing ? 'A line is missing in the trace.' : 'The lines above do not add up to the limit.'
    ]);
  return [whole, ...rows];
}

function spilledText() {
  const equation = incident ? incident.equation : {};
  if (!equation.spilled_bytes) return null;
  const parts = [['spilled_peer_bytes', 'to another device'], ['spilled_nvme_bytes', 'to a file']]
                    .filter(([key]) => equation[key])
                    .map(([key, text]) => sizeText(equation[key]) + ' ' + text);
  return 'In use beside that, moved off the card: ' + sizeText(equation.spilled_bytes) +
      (parts.length ? ', of these ' + parts.join(', ') : '') + '.';
}

function otherPools() { return (data.kind === 'snapshot' ? report : incident || {}).other_pools || []; }

function placeCell({where, caller}) {
  return el(
      'div', null, el('span', {class: 'where'}, where), caller ? el('span', {class: 'more'}, 'from ' + caller) : null);
}

function poolRow(pool) {
  return [
    sizeText(pool.held_bytes), sizeText(pool.in_use_bytes), pool.pool, pool.stream ? addressText(pool.stream) : '0',
    pool.places.length ? el('div', null, ...pool.places.slice(0, 2).map(placeCell)) : 'not known'
  ];
}

function nearHoleRow(hole) {
  return [
    sizeText(hole.piece_bytes), sizeText(hole.free_bytes), sizeText(hole.in_the_way_bytes), countText(hole.blocks),
    el('div', null, ...hole.places.slice(0, 3).map(placeCell))
  ];
}

function showNearHoles() {
  const holes = found && found.near_holes || [];
  const title = 'Closest to a piece that is large enough';
  if (holes.length)
    fill(
        $('memory'), el('h3', null, title),
        table(
            title,
            [['piece', true], ['free of it', true], ['in the way', true], ['blocks', true], ['allocated by', false]],
            holes.map(nearHoleRow)));
}

function pendingText(frees) {
  return 'Pending: ' + sizeText(frees.bytes) + ' in ' + plural(frees.blocks, 'block', 'blocks') +
      ', for work of stream ' + (frees.stream ? addressText(frees.stream) : '0') + '.';
}

function showEquation() {
  const equation = equationOf();
  const when = rehearsal && !report.failure ? 'Where the memory was at the peak' :
      report.failure || incident            ? 'Where the memory was when it failed' :
                                              'Where the memory was at the end';
  if (!equation) return absent('memory', 'Where the memory was', 'The file holds no equation of the memory.');
  fill(
      $('memory'), heading('memory', when), bar(equation),
      table(
          when, [['', false], ['size', true], ['bytes', true], ['share', true], ['what it is', false]],
          equationRows(equation)));
  showNearHoles();
  const pools = otherPools();
  if (pools.length)
    fill(
        $('memory'), el('h3', null, 'What this request may not use'),
        table(
            'What this request may not use',
            [['held', true], ['in use', true], ['pool', false], ['stream', false], ['allocated by', false]],
            pools.map(poolRow)));
  const notes = [
    ...(incident && incident.pending_frees || []).map(pendingText),
    equation.unknown && 'A snapshot does not hold what others hold. Give --capacity, the size of the card, to see it.',
    spilledText()
  ];
  for (const note of notes)
    if (note) fill($('memory'), el('p', {class: 'note'}, note));
  if (rehearsal && rehearsal.cards.length) fill($('memory'), cardTable());
}

function cardTable() {
  const columns = ['', 'allocated', 'reserved', 'outside PyTorch', 'whole card', 'of'];
  const rows = rehearsal.cards.map(
      (card) =>
          [card.name + (card.processes > 1 ? ', all ' + plural(card.processes, 'process', 'processes') : ''),
           sizeText(card.peak_allocated_bytes), sizeText(card.peak_reserved_bytes), sizeText(card.outside_bytes),
           sizeText(card.peak_bytes), card.capacity_bytes ? sizeText(card.capacity_bytes) : '–']);
  return el(
      'div', null, el('h3', null, 'Peak by card'),
      table('Peak by card', columns.map((name, i) => [name, i > 0]), rows));
}
