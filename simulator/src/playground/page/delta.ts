/** One difference between two JSON values, at a path: `set`, `append` to a text, or removed. */
export interface Change {
  at: readonly (string | number)[];
  set?: unknown;
  append?: string;
}

type Json = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What makes the next value of the old one. Texts that grow cost only what they grew by. */
export function changesBetween(old: unknown, next: unknown, at: readonly (string | number)[] = []): Change[] {
  if (Object.is(old, next)) return [];
  if (typeof old === "string" && typeof next === "string" && old !== "" && next.startsWith(old)) {
    return [{ at, append: next.slice(old.length) }];
  }
  if (Array.isArray(old) && Array.isArray(next) && old.length === next.length) {
    return next.flatMap((item: unknown, index) => changesBetween(old[index], item, [...at, index]));
  }
  if (!isObject(old) || !isObject(next)) return [{ at, set: next }];
  const gone = Object.keys(old).filter((name) => !Object.hasOwn(next, name));
  return [
    ...gone.map((name) => ({ at: [...at, name] })),
    ...Object.entries(next).flatMap(([name, value]) =>
      Object.hasOwn(old, name) ? changesBetween(old[name], value, [...at, name]) : [{ at: [...at, name], set: value }],
    ),
  ];
}

/** The value with the changes made; nothing within the old value is touched. */
export function withChanges(value: unknown, changes: readonly Change[]): unknown {
  return changes.reduce((current, change) => changed(current, change, change.at), value);
}

function changed(value: unknown, change: Change, at: Change["at"]): unknown {
  const [name, ...rest] = at;
  if (name === undefined) return change.append === undefined ? change.set : `${String(value)}${change.append}`;
  if (Array.isArray(value)) {
    return value.map((item: unknown, index) => (index === name ? changed(item, change, rest) : item));
  }
  const object = isObject(value) ? value : {};
  const removes = rest.length === 0 && change.append === undefined && !Object.hasOwn(change, "set");
  if (!removes) return { ...object, [name]: changed(object[name], change, rest) };
  return Object.fromEntries(Object.entries(object).filter(([key]) => key !== String(name)));
}
