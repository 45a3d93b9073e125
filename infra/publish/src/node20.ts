// What the bundles use in place of functions that Node 20 does not have: `pack.ts` puts them in.

/** `Promise.withResolvers`. */
export function withResolvers<T>(): Partial<PromiseWithResolvers<T>> {
  const made: Partial<PromiseWithResolvers<T>> = {};
  made.promise = new Promise<T>((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/** `Map.groupBy`. */
export function groupBy<T, K>(
  items: Iterable<T>,
  keyOf: (item: T, index: number) => K,
): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  let index = 0;
  for (const item of items) {
    const key = keyOf(item, index);
    index += 1;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
