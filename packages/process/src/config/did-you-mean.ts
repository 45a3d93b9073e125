/** Longest name that is compared: the work grows with the product of both lengths. */
const maxLength = 200;

/**
 * The end of an error about a name that is unknown: `, did you mean 'x'?` with the nearest of `names`, or nothing
 * when none is near. Near: at most one letter in three is added, lost, changed or swapped; upper case does not count.
 */
export function didYouMean(wanted: string, names: Iterable<string>): string {
  const nearest = nearestName(wanted, names);
  return nearest === undefined ? "" : `, did you mean '${nearest}'?`;
}

/** The nearest of `names`, the first of several; undefined when none is near. */
export function nearestName(wanted: string, names: Iterable<string>): string | undefined {
  if (wanted.length > maxLength) return undefined;
  const lower = wanted.toLowerCase();
  let best = {
    name: undefined as string | undefined,
    distance: Math.max(1, Math.floor(wanted.length / 3)) + 1,
  };
  for (const name of names) {
    if (name === wanted || Math.abs(name.length - wanted.length) >= best.distance) continue;
    const distance = editDistance(lower, name.toLowerCase());
    if (distance < best.distance) best = { name, distance };
  }
  return best.name;
}

/** Letters to add, take away, change, or swap with their neighbour (optimal string alignment). */
function editDistance(a: string, b: string): number {
  let [before, last]: [number[], number[]] = [
    [],
    Array.from({ length: b.length + 1 }, (_, at) => at),
  ];
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const changed = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row[j] = Math.min(changed, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (isSwap) row[j] = Math.min(row[j] ?? 0, (before[j - 2] ?? 0) + 1);
    }
    [before, last] = [last, row];
  }
  return last[b.length] ?? 0;
}
