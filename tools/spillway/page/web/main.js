// Shows the sections in order. One that fails says so and leaves the others alone.

const kSections = training ?
    [
      ['verdict', showRanksVerdict, 'Verdict'], ['ranks', showRanks, 'Ranks'],
      ['differences', showDifferences, 'Differences']
    ] :
    [
      ['verdict', showVerdict, 'Verdict'], ['memory', showEquation, 'Memory'], ['fitted', showFitted, 'Fits'],
      ['time', showTime, 'Time'], ['map', showMap, 'Map'], ['flame', showFlame, 'Stacks'],
      ['holders', showHolders, 'Holders'], ['lines', showLines, 'Lines'], ['ladder', showLadder, 'Ladder'],
      ['events', showEvents, 'Events'], ['notes', showNotes, 'File']
    ];

startTheme();
if (memory) state.moment = memory.failure === null ? memory.peak : memory.shown;
for (const [id, show, name] of kSections) {
  try {
    show();
  } catch (error) {
    console.error(error);
    $(id).append(el('p', {class: 'absent'}, 'This part of the page failed: ' + error.message));
  }
  if ($(id)) $('views').append(el('a', {href: '#' + id}, name));
}
showMissing();
for (const section of document.querySelectorAll('main > section'))
  if (!section.childElementCount) section.remove();
document.querySelector('.licence').before($('tip'));
// When the first picture has been shown: the milliseconds since the page was asked for.
const ready = () => document.body.dataset.ready = String(Math.round(performance.now()));
requestAnimationFrame(() => requestAnimationFrame(ready));
