/** Stands for a value that is not shown. */
const hidden = "***";

function masked(value: unknown, names: ReadonlySet<string>): unknown {
  if (Array.isArray(value)) return value.map((one) => masked(one, names));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [name, names.has(name) ? hidden : masked(one, names)]),
  );
}

/** A copy of a call's arguments in which the values under these names, at any depth, are `***`. */
export function maskedArguments(
  input: Readonly<Record<string, unknown>>,
  secrets: readonly string[],
): Record<string, unknown> {
  const names = new Set(secrets);
  return Object.fromEntries(
    Object.entries(input).map(([name, value]) => [name, names.has(name) ? hidden : masked(value, names)]),
  );
}
