/** A list that forgets its oldest entries, so that a long run keeps a flat memory. */
export interface BoundedLog<Entry> {
  readonly entries: readonly Entry[];
  add(entry: Entry): void;
}

export function createBoundedLog<Entry>(capacity: number): BoundedLog<Entry> {
  let entries: Entry[] = [];
  return {
    get entries() {
      return entries.length > capacity ? entries.slice(-capacity) : entries;
    },
    add(entry) {
      entries.push(entry);
      if (entries.length >= capacity * 2) entries = entries.slice(-capacity);
    },
  };
}
