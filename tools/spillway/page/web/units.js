// Bytes and times as people read them; the text report writes them so too.

const kSizes = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

function sizeText(bytes) {
  let unit = 0, value = Math.abs(bytes);
  while (value >= 1024 && unit + 1 < kSizes.length) value /= 1024, ++unit;
  const sign = bytes < 0 ? '−' : '';
  return sign + (unit === 0 ? Math.round(value) : value.toFixed(2)) + ' ' + kSizes[unit];
}

function tickText(bytes) { return bytes === 0 ? '0' : sizeText(bytes).replace(/\.?0+ /, ' '); }

// "1 610 612 736 B", with spaces that do not break.
function exactText(bytes) { return countText(bytes) + ' B'; }

function countText(count) { return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, '\u202f'); }

function durationText(microseconds) {
  if (microseconds < 0) return '−' + durationText(-microseconds);
  if (microseconds < 1000) return Math.round(microseconds) + ' µs';
  if (microseconds < 999.5e3) return Number((microseconds / 1e3).toPrecision(3)) + ' ms';
  if (microseconds < 120e6) return Number((microseconds / 1e6).toPrecision(3)) + ' s';
  const minutes = Math.floor(microseconds / 60e6);
  if (minutes < 120) return minutes + ' min ' + Math.floor(microseconds / 1e6 % 60) + ' s';
  return Math.floor(minutes / 60) + ' h ' + minutes % 60 + ' min';
}

function shareText(part, whole) {
  if (!(whole > 0)) return '0%';
  const percent = 100 * part / whole;
  return percent > 0 && percent < 1 ? '<1%' : Math.round(percent) + '%';
}

function addressText(address) { return '0x' + address.toString(16); }

function plural(count, one, many) { return countText(count) + '\u00a0' + (count === 1 ? one : many); }
