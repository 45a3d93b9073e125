// JSON can hold half of a surrogate pair (`"\ud83d"`), which is no text: vendors of models and the platform refuse
// requests that hold one. So half pairs become U+FFFD where JSON comes in, and before a model is asked.

/** The value of JSON text, with well-formed texts. Throws as JSON.parse does. */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  return /\\ud[89a-f]/i.test(text) || !text.isWellFormed() ? wellFormed(value) : value;
}

/** The same value with well-formed texts, names of fields included; what has nothing else is not copied. */
export function wellFormed<T>(value: T): T {
  return isWellFormed(value) ? value : (made(value) as T); // it changes no type
}

/** Allocates nothing: each request of a model is looked through, and nearly all are well-formed. */
function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isWellFormed);
  if (!isPlain(value)) return true;
  const fields = value as Readonly<Record<string, unknown>>; // read by names that it has
  for (const name in fields) {
    if (!name.isWellFormed() || !isWellFormed(fields[name])) return false;
  }
  return true;
}

function made(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) {
    const items: unknown[] = value.map(made);
    return items.some((item, at) => item !== value[at]) ? items : value;
  }
  if (!isPlain(value)) return value;
  const fields = Object.entries(value);
  const clean = fields.map(([name, field]) => [name.toWellFormed(), made(field)] as const);
  const isSame = clean.every(
    ([name, field], at) => fields[at]?.[0] === name && fields[at][1] === field,
  );
  return isSame ? value : Object.fromEntries(clean);
}

function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
